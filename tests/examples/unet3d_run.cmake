# A brief run of the segmentation on a small phantom, as CTest does it:
#   cmake -D PROGRAM=... -D FOLDER=... -P unet3d_run.cmake
# One unbroken run, and one that stops in the middle and resumes: both must give the same weights.

set(common --phantom --phantom-size 96 --steps 4 --seed 3 --threads 2)

include(${CMAKE_CURRENT_LIST_DIR}/run_program.cmake)

run(0 "4/4" ${common} --out ${FOLDER}/whole)
expect_files(whole metrics.json weights.safetensors checkpoint.safetensors)
expect_pictures(whole slab.png curves.png)

run(0 "stopped after step 2 of 4" ${common} --out ${FOLDER}/broken --stop-after 2)
run(0 "4/4" ${common} --out ${FOLDER}/broken --resume)
expect_same_weights(whole broken)

run(0 "4/4" ${common} --dtype bf16 --out ${FOLDER}/bf16)
expect_other_weights(whole bf16)

file(READ ${FOLDER}/bf16/metrics.json metrics)
string(JSON steps GET ${metrics} steps)
string(JSON dtype GET ${metrics} dtype)
string(JSON threshold GET ${metrics} dice_threshold)  # the phantom's only fluid is in its ventricles
string(JSON ours GET ${metrics} dice_ours)
if(NOT steps EQUAL 4 OR NOT dtype STREQUAL "bf16" OR NOT threshold EQUAL 1 OR NOT ours LESS 1)
  message(FATAL_ERROR "metrics.json: ${metrics}")
endif()

# What must be refused.
run(1 "is of a run with --seed 3" --phantom --phantom-size 96 --steps 4 --seed 9 --out ${FOLDER}/whole --resume)
run(2 "is not one of f32, bf16" --dtype f16)
run(2 "unknown option" --step 3)
run(0 "--dtype f32|bf16" --help)
