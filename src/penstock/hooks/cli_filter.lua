-- Written by penstock. Changes are lost the next time it is rendered.
-- Runs inside sbatch, on the submit host, before submission: prints the findings of `penstock validate` for scripts that go
-- to bridged partitions. For all other partitions it starts and reads nothing.
-- Inside srun it refuses steps of jobs that run as pods: the nodes refuse them, too, but then srun 22.05 exits with 0.
--
-- The script is checked together with the options of the command line: `sbatch -p k8s` of a script that names another partition.
-- It only advises and refuses early: job_submit.lua refuses the same jobs without this plugin. So if the check cannot run,
-- crashes or takes too long, the job passes. A crash of Python exits with 1, as does a rejected script: a script is refused
-- only if an error was printed for it.

local PENSTOCK = "@PENSTOCK@"
local SITE = "@SITE@"
local DEFAULT_PARTITION = "@DEFAULT_PARTITION@"
local BRIDGED = { @BRIDGED@ }
local REJECTED = 1 -- exit status of `penstock validate` when a script is wrong
local SECONDS = 10 -- a check takes 0.05 s; a file system that hangs must not block sbatch
local SAID_LATER = { "idle-pods", "missing-workdir" } -- warnings that job_submit.lua prints in the same sbatch
local NO_STEPS = "penstock: job steps (srun) do not run in pods yet; put the command into the batch script"

local function is_bridged(partitions)
   for name in string.gmatch(partitions or DEFAULT_PARTITION, "[^,]+") do
      if BRIDGED[name] then return true end
   end
   return false
end

-- One word for /bin/sh: Lua can start programs only through it.
local function quote(text)
   return "'" .. string.gsub(text, "'", "'\\''") .. "'"
end

-- The options on sbatch's command line, which override the script; nil if they cannot be known. Read from /proc, because
-- options[...] does not distinguish an option that was not given from its default (time = 2982616-04:14:00).
local function command_line_options(argv)
   local file = io.open("/proc/self/cmdline", "r")
   if file == nil then return nil end
   local words = {}
   for word in string.gmatch(file:read("*a") or "", "(.-)%z") do words[#words + 1] = word end
   file:close()
   local last = #words - #argv
   if last < 1 then return nil end
   local before = {}
   for number = 2, last do
      if words[number] == ":" then return nil end -- a heterogeneous job: which component is this?
      before[#before + 1] = words[number]
   end
   return before
end

-- Is there a site file, as `penstock apply` installs it? Without one on this submit host, validate looks for one itself.
local function has_site_file()
   local file = SITE ~= "" and io.open(SITE, "r")
   if file then file:close() end
   return file ~= nil and file ~= false
end

local function check(script, options)
   local words = { "timeout", "-k", "1", tostring(SECONDS), quote(PENSTOCK), "validate", "--no-summary" }
   for _, code in ipairs(SAID_LATER) do words[#words + 1] = "--silence=" .. code end
   if has_site_file() then words[#words + 1] = "--site=" .. quote(SITE) end
   for _, word in ipairs(options) do words[#words + 1] = "--with=" .. quote(word) end
   words[#words + 1] = "--"
   words[#words + 1] = quote(script)
   -- The exit status is printed as the last line: not every Lua's close() returns it.
   local pipe = io.popen(table.concat(words, " ") .. " 2>/dev/null; echo $?", "r")
   if pipe == nil then return "", 0 end
   local said, status = string.match(pipe:read("*a"), "^(.-)(%d+)\n$")
   pipe:close()
   return said or "", tonumber(status or 0)
end

-- The partition of the job that a step belongs to; nil if srun asks for a new job, or if it is unknown.
local function partition_of_step(options)
   local job = options["jobid"]
   if job == nil or job == os.getenv("SLURM_JOB_ID") then return os.getenv("SLURM_JOB_PARTITION") end
   local words = { "timeout", "-k", "1", tostring(SECONDS), "squeue", "--noheader", "--format=%P", "--jobs=" .. quote(job) }
   local pipe = io.popen(table.concat(words, " ") .. " 2>/dev/null", "r")
   if pipe == nil then return nil end
   local partition = string.match(pipe:read("*a"), "^%S+")
   pipe:close()
   return partition
end

local function refuse_step(options)
   local partition = partition_of_step(options)
   if partition == nil or not is_bridged(partition) then return slurm.SUCCESS end
   slurm.log_error("%s", NO_STEPS)
   return slurm.ERROR
end

function slurm_cli_setup_defaults(options, early_pass)
   return slurm.SUCCESS
end

function slurm_cli_pre_submit(options, pack_offset)
   if options["type"] == "srun" then return refuse_step(options) end
   if options["type"] ~= "sbatch" or not is_bridged(options["partition"]) then return slurm.SUCCESS end
   local argv = options["argv"]
   if argv == nil or argv[1] == nil or options["wrap"] ~= nil then return slurm.SUCCESS end
   local before = command_line_options(argv)
   if before == nil then return slurm.SUCCESS end
   local said, status = check(argv[1], before)
   for line in string.gmatch(said, "[^\n]+") do slurm.log_info("%s", line) end
   if status == REJECTED and string.find(said, ": error%[") then return slurm.ERROR end
   return slurm.SUCCESS
end

function slurm_cli_post_submit(pack_offset, job_id, step_id)
   return slurm.SUCCESS
end

return slurm.SUCCESS
