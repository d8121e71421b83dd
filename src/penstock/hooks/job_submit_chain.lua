-- Written by penstock. Changes are lost the next time it is rendered.
-- Runs inside slurmctld where a site has its own job_submit.lua: the site's first, then Penstock's.
--
-- Each has its own environment, so neither sees the other's functions. The site's file is reloaded when its text changes, as
-- Slurm does. What the site refuses is refused. If Penstock's part is missing or fails, every job is refused: an unwrapped
-- script would run on the Slurm node itself, and Slurm 22.05 accepts a job after an error. An error in the site's part is
-- logged, as Slurm does, and Penstock's part still runs.

local SITE = "@SITE@"
local OWN = "@OWN@"
local loaded = {}

local function read(path)
   local file = io.open(path, "rb")
   if file == nil then return nil end
   local text = file:read("*a")
   file:close()
   return text
end

local function compile(text, path, environment)
   if setfenv == nil then return load(text, "@" .. path, "t", environment) end
   local chunk, why = loadstring(text, "@" .. path)
   if chunk ~= nil then setfenv(chunk, environment) end
   return chunk, why
end

-- The functions of a file; if it cannot be read or compiled now, those it had before.
local function functions_of(path)
   local text = read(path)
   local known = loaded[path]
   if known ~= nil and (text == nil or known.text == text) then return known.environment end
   if text == nil then return nil end
   local environment = setmetatable({}, { __index = _G })
   local chunk, why = compile(text, path, environment)
   local fine = chunk ~= nil
   if fine then fine, why = pcall(chunk) end
   if not fine then
      slurm.log_error("penstock: %s", tostring(why))
      return known ~= nil and known.environment or nil
   end
   loaded[path] = { text = text, environment = environment }
   return environment
end

local function refuse(text)
   slurm.log_user("%s", "penstock: " .. text)
   return slurm.ERROR
end

-- The number that the function returns, or nil: Slurm takes an error, or a result that is not a number, for success.
local function call(path, answer, ...)
   local fine, result = pcall(answer, ...)
   if fine then return tonumber(result) end
   slurm.log_error("%s", "penstock: " .. path .. " failed: " .. tostring(result))
   return nil
end

local function run(name, ...)
   local site = functions_of(SITE)
   if site ~= nil and rawget(site, name) ~= nil then
      local result = call(SITE, site[name], ...)
      if result ~= nil and result ~= slurm.SUCCESS then return result end
   end
   local own = functions_of(OWN)
   if own == nil or rawget(own, name) == nil then return refuse(OWN .. " cannot be used: tell the administrator") end
   return call(OWN, own[name], ...) or refuse(OWN .. " failed: tell the administrator")
end

function slurm_job_submit(...) return run("slurm_job_submit", ...) end

function slurm_job_modify(...) return run("slurm_job_modify", ...) end

return slurm.SUCCESS
