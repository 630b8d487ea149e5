# Runs mlxcel-server whenever this user is logged on, as a scheduled task, or removes that task again.
#
#   powershell -ExecutionPolicy Bypass -File service.ps1 install [-Model OWNER/NAME] [-Port 8080]
#   powershell -ExecutionPolicy Bypass -File service.ps1 remove
#
# The server listens on this machine alone. Its log is %LOCALAPPDATA%\mlxcel\server.log.
param(
    [Parameter(Mandatory = $true, Position = 0)][ValidateSet("install", "remove")][string]$Action,
    [string]$Model = "",
    [int]$Port = 8080
)
$ErrorActionPreference = "Stop"
$name = "mlxcel-server"
if ($Action -eq "remove") {
    Unregister-ScheduledTask -TaskName $name -Confirm:$false
    Write-Output "removed the task $name"
    exit 0
}
$program = Join-Path $PSScriptRoot "mlxcel.exe"
$log = Join-Path $env:LOCALAPPDATA "mlxcel\server.log"
New-Item -ItemType Directory -Force (Split-Path $log) | Out-Null
$arguments = "serve --port $Port"
if ($Model) { $arguments += " -m `"$Model`"" }
$command = "/d /c `"`"$program`" $arguments > `"$log`" 2>&1`""
$task = New-ScheduledTaskAction -Execute "cmd.exe" -Argument $command
$trigger = New-ScheduledTaskTrigger -AtLogOn -User $env:USERNAME
$settings = New-ScheduledTaskSettingsSet -RestartCount 3 -RestartInterval (New-TimeSpan -Minutes 1) -ExecutionTimeLimit 0 -AllowStartIfOnBatteries
Register-ScheduledTask -TaskName $name -Action $task -Trigger $trigger -Settings $settings -Force | Out-Null
Start-ScheduledTask -TaskName $name
Write-Output "the server runs at http://127.0.0.1:$Port/ and starts with your next logon; log: $log"
