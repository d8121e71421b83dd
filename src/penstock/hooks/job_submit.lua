-- Written by penstock. Changes are lost the next time it is rendered.
-- Runs inside slurmctld at every submission: puts our launcher in front of the scripts of bridged partitions.
--
-- Only the first line of the script changes: "#!/bin/bash" becomes "#!<libexec>/penstock-launch /bin/bash". Everything else
-- stays byte for byte. What cannot work in pods, or would let code run on the Slurm node itself, is refused here in words.
-- Names and the like are kept free of control characters because `scontrol show job` prints them raw, before lines that we read.
--
-- slurmd starts the launcher as the job's owner with the job's environment. So whatever of it would make the launcher load
-- code (LD_PRELOAD and its kin) is put aside under another name, to be given back inside the pod, and slurmd is kept from
-- running the owner's login shell for --export=NONE. A mark that users cannot write (AdminComment) tells penstockd that
-- all this was done: a job that came to the partition another way is not started. With it stands when the job was submitted:
-- Slurm's own SubmitTime changes with every requeue, and job numbers can begin anew. And what the owner said of requeueing:
-- a job that finds no room goes back to the queue, and Slurm cancels one that may not. So every job may until its script
-- starts; then penstockd makes the owner's word good.
--
-- Slurm 22.05 accepts a job whose plugin raised an error, as it is. So nothing here may raise one: it becomes a refusal.

local LAUNCHER = "@LAUNCHER@"
local DEFAULT_PARTITION = "@DEFAULT_PARTITION@"
local BRIDGED = { @BRIDGED@ }
local ROOT_MAY_SUBMIT = @ROOT_MAY_SUBMIT@
local SHARED = { @SHARED@ } -- folders that pods see under the same path
local MISSING_WORKDIR = "@MISSING_WORKDIR@" -- what becomes of a job whose working directory is in none: "refuse" or "tmp"
local UNSAID = 4294967293 -- a number of Slurm's from here on says that nothing was asked for
local SHEBANG_LIMIT = 255 -- the kernel reads no more of a "#!" line
local MARK = "@MARK@"
local PUT_ASIDE = "@PUT_ASIDE@"
local LOADERS = { @LOADERS@ } -- what the dynamic linker and the C library obey

-- Never as a format: what users wrote is part of it.
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

-- What a job has before its nodes in `scontrol show job` that users can write, and what it is called there.
local PRINTED_FIRST = {
   { "name", "name", "--job-name" }, { "account", "account", "--account" }, { "wckey", "wckey", "--wckey" },
   { "mcs_label", "MCS label", "--mcs-label" }, { "batch_features", "feature of the batch node", "--batch" },
   { "req_nodes", "list of nodes", "--nodelist" }, { "exc_nodes", "list of nodes", "--exclude" },
   { "dependency", "dependency", "--dependency" }, { "alloc_node", "submitting host", "another host" },
}

-- Why a job's own words cannot be taken as they are; nil when they can.
local function problem_with_words(job_desc)
   for _, field in ipairs(PRINTED_FIRST) do
      local text = job_desc[field[1]]
      if text ~= nil and string.find(text, "%c") ~= nil then
         return "the job's " .. field[2] .. " has a control character in it: choose a plain one with " .. field[3]
      end
   end
   return nil
end

-- The #K8S_ lines, each with its number. They end at the first command, as for sbatch: what comes after it, in a
-- here-document perhaps, is the script's own affair.
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

-- The path without "//", "." and "..", as far as that can be told without the disk.
local function plain(path)
   local parts = {}
   for part in string.gmatch(path, "[^/]+") do
      if part == ".." then table.remove(parts) elseif part ~= "." then parts[#parts + 1] = part end
   end
   return "/" .. table.concat(parts, "/")
end

local function lies_in(path, folder)
   return path == folder or string.sub(path, 1, string.len(folder) + 1) == folder .. "/"
end

-- Does the job's pod see its working directory, or does the script itself say where it runs?
local function has_workdir(path, script)
   for _, folder in ipairs(SHARED) do
      if lies_in(path, folder) then return true end
   end
   for _, each in ipairs(directives(script)) do
      local name, value = string.match(each.line, "^#K8S_([A-Z_]+)=[\"']?([^\"'%s]*)")
      if name == "WORKDIR" or name == "COMMAND" and value == "@entrypoint" then return true end
      local target = name == "MOUNT" and (string.match(value, "^[^:]*:([^:]+)") or string.match(value, "^[^:]+"))
      if target and lies_in(path, plain(target)) then return true end
   end
   return false
end

-- What to say of a working directory that pods do not see; nil when they do.
local function without_workdir(path, script)
   if path == nil or has_workdir(plain(path), script) then return nil end
   local text = "pods do not see the working directory " .. path
   if MISSING_WORKDIR == "refuse" then
      text = text .. ": what the job writes there would be lost"
   else
      text = text .. ": the job runs in /tmp of its pod, and files it leaves there vanish with it"
   end
   if #SHARED == 0 then return text end
   return text .. ". Submit from a folder under " .. table.concat(SHARED, " or ") .. ", or name one: --chdir=" .. SHARED[1] .. "/..."
end

-- The number of the first line that calls srun, or nil. A hint, not a refusal: it may be in a branch that is never taken.
local function first_srun(script)
   local number = 0
   for line in string.gmatch(script, "([^\n]*)\n?") do
      number = number + 1
      if string.find(line, "^%s*srun%s") then return number end
   end
   return nil
end

-- What to say of a job on several nodes; nil when it asks for one, or leaves it to Slurm.
local function idle_pods(nodes)
   if nodes == nil or nodes < 2 or nodes >= UNSAID then return nil end
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

-- The launcher starts with nothing in its environment that would make it load a user's code. Of a variable that was sent twice
-- only the first is seen here: PrologSlurmctld looks at what has become of it (unsafeenv.py).
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
   local words = problem_with_words(job_desc)
   if words ~= nil then return words end
   local number, line = malformed_directive(job_desc.script)
   if number ~= nil then
      return "line " .. number .. " of the script: \"" .. line .. "\" is not of the form #K8S_NAME=value"
   end
   if MISSING_WORKDIR == "refuse" then return without_workdir(job_desc.work_dir, job_desc.script) end
   return nil
end

-- What the user should know of a job that is taken all the same.
local function hints(job_desc)
   local found = {}
   if MISSING_WORKDIR ~= "refuse" then found[1] = without_workdir(job_desc.work_dir, job_desc.script) end
   local calling = first_srun(job_desc.script)
   if calling ~= nil then
      found[#found + 1] = "line " .. calling .. " of the script calls srun, which does not run in pods yet: write the command without it"
   end
   found[#found + 1] = idle_pods(tonumber(job_desc.min_nodes))
   return found
end

-- The partitions asked for; a reservation brings its own when none are named.
local function partitions_of(job_desc)
   if job_desc.partition == nil and job_desc.reservation ~= nil then
      local reservation = slurm.reservations[job_desc.reservation]
      if reservation ~= nil then return reservation.partition end
   end
   return job_desc.partition
end

-- " requeue=0" or " requeue=1" if the owner said so; the job itself may wait in any case.
local function let_wait(job_desc)
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
      job_desc.admin_comment = string.format("%s %d", MARK, os.time()) .. let_wait(job_desc)
   end
   return result
end

-- A queued job keeps its kind: an unwrapped script moved to a bridged partition would run on the node itself.
local function modify(job_desc, job_rec)
   if job_desc.partition ~= nil and how_bridged(job_desc.partition) ~= how_bridged(job_rec.partition) then
      return refuse("a job cannot move between partitions with and without pods: cancel it and submit it again")
   end
   local words = how_bridged(job_rec.partition) ~= "none" and problem_with_words(job_desc) or nil
   if words ~= nil then return refuse(words) end
   if MISSING_WORKDIR == "refuse" and how_bridged(job_rec.partition) ~= "none" then
      local problem = without_workdir(job_desc.work_dir, "")
      if problem ~= nil then return refuse(problem) end
   end
   return slurm.SUCCESS
end

-- What that function answers; a refusal when it fails.
local function safely(answer, ...)
   local fine, result = pcall(answer, ...)
   if fine then return result end
   slurm.log_error("%s", "penstock: job_submit.lua failed: " .. tostring(result))
   return refuse("the job could not be looked at: tell the administrator")
end

function slurm_job_submit(job_desc, part_list, submit_uid) return safely(submit, job_desc) end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid) return safely(modify, job_desc, job_rec) end

return slurm.SUCCESS
