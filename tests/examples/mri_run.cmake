# A brief run of the main job on a small phantom, as CTest does it:
#   cmake -D PROGRAM=... -D FOLDER=... -P mri_run.cmake
# One unbroken run, the same again, and one that stops in the middle and resumes. All must give the same weights.

set(common --phantom --phantom-size 64 --steps 6 --seed 3 --threads 2)

include(${CMAKE_CURRENT_LIST_DIR}/run_program.cmake)

run(0 "6/6" ${common} --out ${FOLDER}/whole)
expect_files(whole metrics.json weights.safetensors checkpoint.safetensors)
expect_pictures(whole slices.png curves.png)

run(0 "6/6" ${common} --out ${FOLDER}/again)
expect_same_weights(whole again)

run(0 "stopped after step 4 of 6" ${common} --out ${FOLDER}/broken --stop-after 4)
run(0 "6/6" ${common} --out ${FOLDER}/broken --resume)
expect_same_weights(whole broken)

run(0 "6/6" --phantom --phantom-size 64 --steps 6 --seed 4 --threads 1 --out ${FOLDER}/other)
expect_other_weights(whole other)

file(READ ${FOLDER}/whole/metrics.json metrics)
string(JSON steps GET ${metrics} steps)
string(JSON psnr GET ${metrics} psnr_ours foreground)
if(NOT steps EQUAL 6 OR NOT psnr GREATER 10)
  message(FATAL_ERROR "metrics.json: ${metrics}")
endif()

# What must be refused.
run(1 "is of a run with --seed 3" --phantom --phantom-size 64 --steps 6 --seed 9 --out ${FOLDER}/whole --resume)
run(1 "to resume from" ${common} --out ${FOLDER}/nothing --resume)
file(WRITE ${FOLDER}/broken/checkpoint.safetensors "half a file")
run(1 "error:" ${common} --out ${FOLDER}/broken --resume)
file(WRITE ${FOLDER}/text.nii "This is no head.")
run(1 "truncated" --volume ${FOLDER}/text.nii --out ${FOLDER}/text)
run(1 "no such file" --volume ${FOLDER}/none.nii --out ${FOLDER}/text)
run(1 "--out: cannot write into the folder ${FOLDER}/text.nii/inside" ${common} --out ${FOLDER}/text.nii/inside)
run(1 "--out: cannot write into the folder ${FOLDER}/text.nii" ${common} --out ${FOLDER}/text.nii)
if(EXISTS /proc/self)  # a folder that takes no files
  run(1 "--out: cannot write into the folder /proc" ${common} --out /proc)
endif()
run(2 "is not a number from" --steps many)
run(2 "unknown option" --step 3)
run(0 "Usage:" --help)
