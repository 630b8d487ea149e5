; The installer: for one user, without administrator rights. packaging/pack.py runs it:
;   makensis -DVERSION=... -DFILES=FOLDER -DLIST=FILE -DOUT=FILE [-DSIGN=PROGRAM] mlxcel.nsi
; LIST holds the macros install_files and remove_files; SIGN signs the uninstaller that the installer writes.
; Silent: installer.exe /S [/D=FOLDER]; silent removal: FOLDER\uninstall.exe /S
Target amd64-unicode
Unicode true
SetCompressor /SOLID lzma
Name "mlxcel ${VERSION}"
OutFile "${OUT}"
RequestExecutionLevel user
InstallDir "$LOCALAPPDATA\Programs\mlxcel"
InstallDirRegKey HKCU "Software\mlxcel" "InstallDir"
ShowInstDetails nevershow
BrandingText "The mlxcel authors"
VIProductVersion "${VERSION}.0"
VIAddVersionKey "ProductName" "mlxcel"
VIAddVersionKey "CompanyName" "The mlxcel authors"
VIAddVersionKey "FileDescription" "mlxcel installer"
VIAddVersionKey "FileVersion" "${VERSION}"
VIAddVersionKey "LegalCopyright" "The mlxcel authors, Apache License 2.0"

!define UNINSTALL "Software\Microsoft\Windows\CurrentVersion\Uninstall\mlxcel"

!include "${LIST}"
!ifdef SIGN
!uninstfinalize '"${SIGN}" "%1"'
!endif
!include LogicLib.nsh
!include WinMessages.nsh
Page directory
Page instfiles
UninstPage uninstConfirm
UninstPage instfiles

; Adds or removes one folder in the user's PATH; the others stay as they are. Long values go through the registry API whole.
!macro path_macros un
Function ${un}PathWithout ; in: value on the stack; out: the value without $INSTDIR
  Exch $0
  Push $1
  Push $2
  Push $3
  Push $4
  StrCpy $1 "" ; result
  loop:
    StrCmp $0 "" done
    StrCpy $2 0
    find:
      StrCpy $3 $0 1 $2
      StrCmp $3 "" found
      StrCmp $3 ";" found
      IntOp $2 $2 + 1
      Goto find
    found:
    StrCpy $4 $0 $2
    IntOp $2 $2 + 1
    StrCpy $0 $0 "" $2
    StrCmp $4 "" loop
    StrCmp $4 "$INSTDIR" loop
    StrCmp $1 "" 0 +3
    StrCpy $1 $4
    Goto loop
    StrCpy $1 "$1;$4"
    Goto loop
  done:
  StrCpy $0 $1
  Pop $4
  Pop $3
  Pop $2
  Pop $1
  Exch $0
FunctionEnd
!macroend
!insertmacro path_macros ""
!insertmacro path_macros "un."

Section "mlxcel"
  !insertmacro install_files
  SetOutPath "$INSTDIR"
  WriteUninstaller "$INSTDIR\uninstall.exe"
  WriteRegStr HKCU "Software\mlxcel" "InstallDir" "$INSTDIR"
  WriteRegStr HKCU "${UNINSTALL}" "DisplayName" "mlxcel ${VERSION}"
  WriteRegStr HKCU "${UNINSTALL}" "DisplayVersion" "${VERSION}"
  WriteRegStr HKCU "${UNINSTALL}" "Publisher" "The mlxcel authors"
  WriteRegStr HKCU "${UNINSTALL}" "DisplayIcon" "$INSTDIR\mlxcel.exe"
  WriteRegStr HKCU "${UNINSTALL}" "UninstallString" '"$INSTDIR\uninstall.exe"'
  WriteRegStr HKCU "${UNINSTALL}" "QuietUninstallString" '"$INSTDIR\uninstall.exe" /S'
  WriteRegDWORD HKCU "${UNINSTALL}" "NoModify" 1
  WriteRegDWORD HKCU "${UNINSTALL}" "NoRepair" 1
  CreateDirectory "$SMPROGRAMS\mlxcel"
  CreateShortcut "$SMPROGRAMS\mlxcel\mlxcel chat page.lnk" "$INSTDIR\mlxcel.exe" "serve --open" "$INSTDIR\mlxcel.exe"
  CreateShortcut "$SMPROGRAMS\mlxcel\mlxcel in the terminal.lnk" "$INSTDIR\mlxcel.exe" "run" "$INSTDIR\mlxcel.exe"
  ReadRegStr $0 HKCU "Environment" "Path"
  Push $0
  Call PathWithout
  Pop $0
  ${If} $0 == ""
    WriteRegExpandStr HKCU "Environment" "Path" "$INSTDIR"
  ${Else}
    WriteRegExpandStr HKCU "Environment" "Path" "$0;$INSTDIR"
  ${EndIf}
  SendMessage ${HWND_BROADCAST} ${WM_SETTINGCHANGE} 0 "STR:Environment" /TIMEOUT=2000
SectionEnd

Section "Uninstall"
  ReadRegStr $0 HKCU "Environment" "Path"
  Push $0
  Call un.PathWithout
  Pop $0
  WriteRegExpandStr HKCU "Environment" "Path" "$0"
  SendMessage ${HWND_BROADCAST} ${WM_SETTINGCHANGE} 0 "STR:Environment" /TIMEOUT=2000
  Delete "$SMPROGRAMS\mlxcel\*.lnk"
  RMDir "$SMPROGRAMS\mlxcel"
  !insertmacro remove_files
  Delete "$INSTDIR\uninstall.exe"
  ; models are in the store under %LOCALAPPDATA%\mlxcel and stay
  RMDir "$INSTDIR"
  DeleteRegKey HKCU "${UNINSTALL}"
  DeleteRegKey HKCU "Software\mlxcel"
SectionEnd
