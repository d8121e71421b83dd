-- Written by penstock. Changes are lost the next time it is rendered.
-- Runs inside slurmctld at every submission: makes the launcher the interpreter of scripts in bridged partitions.
--
-- Only the first line of the script changes: "#!/bin/bash" becomes "#!<libexec>/penstock-launch /bin/bash". The rest stays
-- byte for byte. Jobs that cannot work in pods, or that would run code on the Slurm node itself, are refused with a reason.
-- Control characters in names are refused because `scontrol show job` prints them raw, before lines that we parse.
--
-- slurmd starts the launcher as the job's owner with the job's environment. So variables that would make the launcher load
-- code (such as LD_PRELOAD) are renamed, and restored inside the pod, and slurmd is kept from running the owner's login
-- shell for --export=NONE. A mark in AdminComment, which users cannot write, tells penstockd that this was done: it starts no
-- job without the mark. The mark contains the time of submission: Slurm's SubmitTime changes with every requeue, and job ids
-- can start over. It also contains the owner's --requeue or --no-requeue: admission requeues a job that finds no room, and
-- Slurm cancels a job that may not be requeued. So every job may be requeued until its script starts; then penstockd restores
-- the owner's choice.
--
-- Slurm 22.05 accepts a job unchanged if its plugin raises an error. So every error here becomes a refusal.

local LAUNCHER = "@LAUNCHER@"
local DEFAULT_PARTITION = "@DEFAULT_PARTITION@"
local BRIDGED = { @BRIDGED@ }
local ROOT_MAY_SUBMIT = @ROOT_MAY_SUBMIT@
local SHARED = { @SHARED@ } -- folders mounted in pods under the same path
local MISSING_WORKDIR = "@MISSING_WORKDIR@" -- for a job whose working directory is outside of them: "refuse" or "tmp"
local UNSET = 4294967293 -- from here on Slurm's numbers mean that nothing was requested
local SHEBANG_LIMIT = 255 -- the kernel reads no more of a "#!" line
local MARK = "@MARK@"
local PUT_ASIDE = "@PUT_ASIDE@"
local LOADERS = { @LOADERS@ } -- variables of the dynamic linker and the C library

-- Never as a format string: it contains users' text.
local function say(text)
   slurm.log_user("%s", "penstock: " .. text)
end

local function refuse(text)
   say(text)
   return slurm.ERROR
end

-- Is this list of partitions bridged: "all", "none" or "some"?
local function how_bridged(partitions)
   local bridged, plain = 0, 0
   for name in string.gmatch(partitions or DEFAULT_PARTITION, "[^,]+") do
      if BRIDGED[name] then bridged = bridged + 1 else plain = plain + 1 end
   end
   if bridged == 0 then return "none" end
   return plain == 0 and "all" or "some"
end

-- Fields that users can set and `scontrol show job` prints before the nodes: field, its name in messages, its option.
local PRINTED_FIRST = {
   { "name", "name", "--job-name" }, { "account", "account", "--account" }, { "wckey", "wckey", "--wckey" },
   { "mcs_label", "MCS label", "--mcs-label" }, { "batch_features", "feature of the batch node", "--batch" },
   { "req_nodes", "list of nodes", "--nodelist" }, { "exc_nodes", "list of nodes", "--exclude" },
   { "dependency", "dependency", "--dependency" }, { "alloc_node", "submitting host", "another host" },
}

-- Why one of these fields is refused, or nil.
local function control_character_problem(job_desc)
   for _, field in ipairs(PRINTED_FIRST) do
      local text = job_desc[field[1]]
      if text ~= nil and string.find(text, "%c") ~= nil then
         return "the job's " .. field[2] .. " has a control character in it: choose a plain one with " .. field[3]
      end
   end
   return nil
end

-- The #K8S_ lines with their numbers, up to the first command, as sbatch does: later ones may be part of a here-document.
local function directives(script)
   local found, number = {}, 0
   for line in string.gmatch(script, "([^\n]*)\n?") do
      number = number + 1
      if string.find(line, "^%s*[^%s#]") then break end
      if string.find(line, "^#K8S_") then found[#found + 1] = { number = number, line = line } end
   end
   return found
end

-- The number and text of the first malformed #K8S_ line, or nil.
local function malformed_directive(script)
   for _, each in ipairs(directives(script)) do
      if not string.find(each.line, "^#K8S_[A-Z_]+=%S") then return each.number, each.line end
   end
   return nil
end

-- The path without "//", "." and "..", without looking at the disk.
local function normalize(path)
   local parts = {}
   for part in string.gmatch(path, "[^/]+") do
      if part == ".." then table.remove(parts) elseif part ~= "." then parts[#parts + 1] = part end
   end
   return "/" .. table.concat(parts, "/")
end

local function lies_in(path, folder)
   return path == folder or string.sub(path, 1, string.len(folder) + 1) == folder .. "/"
end

-- Does the job's pod see its working directory, or does the script set another one?
local function has_workdir(path, script)
   for _, folder in ipairs(SHARED) do
      if lies_in(path, folder) then return true end
   end
   for _, each in ipairs(directives(script)) do
      local name, value = string.match(each.line, "^#K8S_([A-Z_]+)=[\"']?([^\"'%s]*)")
      if name == "WORKDIR" or name == "COMMAND" and value == "@entrypoint" then return true end
      local target = name == "MOUNT" and (string.match(value, "^[^:]*:([^:]+)") or string.match(value, "^[^:]+"))
      if target and lies_in(path, normalize(target)) then return true end
   end
   return false
end

-- The message for a working directory that pods do not see, or nil.
local function missing_workdir_text(path, script)
   if path == nil or has_workdir(normalize(path), script) then return nil end
   local text = "pods do not see the working directory " .. path
   if MISSING_WORKDIR == "refuse" then
      text = text .. ": what the job writes there would be lost"
   else
      text = text .. ": the job runs in /tmp of its pod, and files it leaves there vanish with it"
   end
   if #SHARED == 0 then return text end
   return text .. ". Submit from a folder under " .. table.concat(SHARED, " or ") .. ", or name one: --chdir=" .. SHARED[1] .. "/..."
end

-- The number of the first line that calls srun, or nil. Only a hint: it may be in a branch that never runs.
local function first_srun(script)
   local number = 0
   for line in string.gmatch(script, "([^\n]*)\n?") do
      number = number + 1
      if string.find(line, "^%s*srun%s") then return number end
   end
   return nil
end

-- The hint for a job that asks for several nodes, or nil.
local function idle_pods_text(nodes)
   if nodes == nil or nodes < 2 or nodes >= UNSET then return nil end
   return string.format("the job asks for %d nodes: its script runs in a pod on the first one, and the pods on the others stay idle, with their GPUs. ", nodes)
      .. "Job steps (srun) do not run in pods yet: ask for one node, or make an array of jobs on one node"
end

local function wrap(job_desc)
   local first = string.match(job_desc.script, "^#!([^\n]*)")
   if first == nil then
      return refuse("line 1 of the script must name its interpreter, such as #!/bin/bash")
   end
   local interpreter = string.match(first, "^%s*(.-)%s*$")
   local wrapped = "#!" .. LAUNCHER .. " " .. interpreter
   if string.len(wrapped) > SHEBANG_LIMIT then
      return refuse("line 1 of the script is too long (" .. string.len(first) .. " bytes): use a shorter interpreter path")
   end
   job_desc.script = wrapped .. string.sub(job_desc.script, string.len(first) + 3)
   return slurm.SUCCESS
end

-- Rename variables that would make the launcher load a user's code. Of a variable that was sent twice only the first is seen
-- here; PrologSlurmctld checks the result (unsafeenv.py).
local function disarm(job_desc)
   local environment = job_desc.environment
   if environment == nil then return end
   for _, name in ipairs(LOADERS) do
      local value = environment[name]
      if value ~= nil and value ~= "" then
         environment[PUT_ASIDE .. name] = value
         environment[name] = ""
      end
   end
   local login = environment["SLURM_GET_USER_ENV"]
   if login ~= nil then
      environment[PUT_ASIDE .. "SLURM_GET_USER_ENV"] = login
      environment["SLURM_GET_USER_ENV"] = "0"
   end
end

local function problem_with(job_desc)
   if job_desc.user_id == 0 and not ROOT_MAY_SUBMIT then
      return "root's jobs do not run as pods here: submit as an ordinary user"
   end
   if job_desc.script == nil or job_desc.script == "" then
      return "jobs in this partition run as pods and need a batch script: use sbatch (salloc, srun and heterogeneous jobs are not there yet)"
   end
   if job_desc.container ~= nil and job_desc.container ~= "" then
      return "--container is not used here: name the image with a line #K8S_IMAGE=... in the script"
   end
   local words = control_character_problem(job_desc)
   if words ~= nil then return words end
   local number, line = malformed_directive(job_desc.script)
   if number ~= nil then
      return "line " .. number .. " of the script: \"" .. line .. "\" is not of the form #K8S_NAME=value"
   end
   if MISSING_WORKDIR == "refuse" then return missing_workdir_text(job_desc.work_dir, job_desc.script) end
   return nil
end

-- Warnings about a job that is accepted.
local function hints(job_desc)
   local found = {}
   if MISSING_WORKDIR ~= "refuse" then found[1] = missing_workdir_text(job_desc.work_dir, job_desc.script) end
   local calling = first_srun(job_desc.script)
   if calling ~= nil then
      found[#found + 1] = "line " .. calling .. " of the script calls srun, which does not run in pods yet: write the command without it"
   end
   found[#found + 1] = idle_pods_text(tonumber(job_desc.min_nodes))
   return found
end

-- The requested partitions, or else the reservation's.
local function partitions_of(job_desc)
   if job_desc.partition == nil and job_desc.reservation ~= nil then
      local reservation = slurm.reservations[job_desc.reservation]
      if reservation ~= nil then return reservation.partition end
   end
   return job_desc.partition
end

-- Allow requeueing; returns " requeue=0" or " requeue=1" if the owner chose.
local function allow_requeue(job_desc)
   local own = job_desc.requeue
   job_desc.requeue = 1
   return (own == 0 or own == 1) and string.format(" requeue=%d", own) or ""
end

local function submit(job_desc)
   local kind = how_bridged(partitions_of(job_desc))
   if kind == "none" then return slurm.SUCCESS end
   -- crash point: submit.asked
   if kind == "some" then
      return refuse("partitions " .. job_desc.partition .. " are partly pods and partly not: choose one kind")
   end
   local problem = problem_with(job_desc)
   if problem ~= nil then return refuse(problem) end
   for _, text in ipairs(hints(job_desc)) do say(text) end
   disarm(job_desc)
   local result = wrap(job_desc)
   if result == slurm.SUCCESS then
      job_desc.admin_comment = string.format("%s %d", MARK, os.time()) .. allow_requeue(job_desc)
   end
   return result
end

-- A queued job cannot become bridged or stop being so: an unwrapped script would run on the node itself.
local function modify(job_desc, job_rec)
   if job_desc.partition ~= nil and how_bridged(job_desc.partition) ~= how_bridged(job_rec.partition) then
      return refuse("a job cannot move between partitions with and without pods: cancel it and submit it again")
   end
   local words = how_bridged(job_rec.partition) ~= "none" and control_character_problem(job_desc) or nil
   if words ~= nil then return refuse(words) end
   if MISSING_WORKDIR == "refuse" and how_bridged(job_rec.partition) ~= "none" then
      local problem = missing_workdir_text(job_desc.work_dir, "")
      if problem ~= nil then return refuse(problem) end
   end
   return slurm.SUCCESS
end

-- The function's result, or a refusal if it raises an error.
local function safely(answer, ...)
   local fine, result = pcall(answer, ...)
   if fine then return result end
   slurm.log_error("%s", "penstock: job_submit.lua failed: " .. tostring(result))
   return refuse("the job could not be checked: tell the administrator")
end

function slurm_job_submit(job_desc, part_list, submit_uid) return safely(submit, job_desc) end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid) return safely(modify, job_desc, job_rec) end

return slurm.SUCCESS
