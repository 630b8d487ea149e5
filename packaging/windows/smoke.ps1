# Proves a Windows installation: prints PASS or FAIL per line and writes report.json. docs/windows.md says what to expect.
#
#   powershell -ExecutionPolicy Bypass -File smoke.ps1 [-Dir FOLDER] [-Cpu]
#
# -Cpu leaves the GPU lines out. Downloads about 1 GB of models (mlx-community/Qwen3-0.6B-4bit, Llama-3.2-1B-Instruct-4bit) into the store.
param([string]$Dir = $PSScriptRoot, [switch]$Cpu)
# Words on standard error and exit codes are ours to judge, whatever the shell that calls this is set to.
$ErrorActionPreference = "Continue"
$PSNativeCommandUseErrorActionPreference = $false
$mlxcel = Join-Path $Dir "mlxcel.exe"
$server = Join-Path $Dir "mlxcel-server.exe"
$device = if ($Cpu) { "cpu" } else { "cuda" }
$script:results = @()

function Test-Line([string]$Name, [scriptblock]$Body) {
    $watch = [System.Diagnostics.Stopwatch]::StartNew()
    try { $detail = (& $Body | Out-String).Trim(); $ok = $true } catch { $detail = "$_"; $ok = $false }
    $word = if ($ok) { "PASS" } else { "FAIL" }
    Write-Output ("{0}  {1}  ({2:n1} s)" -f $word, $Name, $watch.Elapsed.TotalSeconds)
    if (-not $ok) { Write-Output "      $detail" }
    $script:results += @{ name = $Name; pass = $ok; seconds = $watch.Elapsed.TotalSeconds; detail = $detail }
}

function Invoke-Program([string]$Program, [string[]]$Arguments) {
    $out = & $Program @Arguments 2>&1 | ForEach-Object { "$_" } | Out-String
    if ($LASTEXITCODE -ne 0) { throw "exit code $LASTEXITCODE`: $out" }
    $out
}

$qwen = "mlx-community/Qwen3-0.6B-4bit"
$llama = "mlx-community/Llama-3.2-1B-Instruct-4bit"
Test-Line "mlxcel --version" { Invoke-Program $mlxcel @("--version") }
Test-Line "mlxcel-server --version" { Invoke-Program $server @("--version") }
Test-Line "doctor" { Invoke-Program $mlxcel @("doctor") }
Test-Line "generate with the built-in model" { Invoke-Program $mlxcel @("generate", "-p", "Once upon a time", "-n", "16", "--device", $device) }
Test-Line "download $qwen" { Invoke-Program $mlxcel @("download", $qwen) }
Test-Line "generate on $device" { Invoke-Program $mlxcel @("generate", "-m", $qwen, "-p", "Hello", "-n", "16", "--device", $device) }
Test-Line "ten tokens of a 1B 4-bit model" { Invoke-Program $mlxcel @("generate", "-m", $llama, "-p", "Hello", "-n", "10", "--device", $device) }
Test-Line "one chat through mlxcel-server" {
    $port = 18080
    $process = Start-Process -FilePath $server -ArgumentList @("-m", $qwen, "--port", "$port", "--device", $device) -PassThru -WindowStyle Hidden
    try {
        foreach ($i in 1..120) {
            try { Invoke-RestMethod "http://127.0.0.1:$port/health" | Out-Null; break } catch { Start-Sleep -Milliseconds 500 }
        }
        $body = @{ messages = @(@{ role = "user"; content = "Say hello." }); max_tokens = 16 } | ConvertTo-Json -Depth 5
        $answer = Invoke-RestMethod "http://127.0.0.1:$port/v1/chat/completions" -Method Post -ContentType "application/json" -Body $body
        if ($answer.usage.completion_tokens -lt 1) { throw "no tokens in the answer" }
        "$($answer.usage.completion_tokens) tokens"
    } finally { Stop-Process -Id $process.Id -Force }
}
Test-Line "a path with spaces and umlauts" {
    $folder = Join-Path $env:TEMP ("mlxcel smoke " + [char]0xe4 + [char]0xf6 + [char]0xfc)
    Invoke-Program $mlxcel @("synth", "--shape", "tiny", "-o", $folder)
    try { Invoke-Program $mlxcel @("generate", "-m", $folder, "-p", "Hello", "-n", "4") } finally { Remove-Item -Recurse -Force $folder }
}
Test-Line "an untrusted certificate is refused" {
    $env:HF_ENDPOINT = "https://self-signed.badssl.com"
    $out = & $mlxcel download "smoke/none" 2>&1 | ForEach-Object { "$_" } | Out-String
    $code = $LASTEXITCODE
    Remove-Item Env:HF_ENDPOINT
    if ($code -eq 0) { throw "the download did not fail" }
    if ($out -notmatch "certificate|schannel|SEC_E_") { throw "it failed for another reason: $out" }
    $out
}
$failed = @($script:results | Where-Object { -not $_.pass }).Count
$report = @{ results = $script:results; os = [System.Environment]::OSVersion.VersionString; failed = $failed }
$report | ConvertTo-Json -Depth 5 | Set-Content -Encoding UTF8 "report.json"
Write-Output "$($script:results.Count - $failed) passed, $failed failed; report.json"
exit [int]($failed -gt 0)
