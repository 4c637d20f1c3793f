"""What bench/conv3d_sweep.py is made of."""
