package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The script completes words in a bash without the package bash-completion, also after flags and
// commas.
func TestBashCompletesWithoutPackages(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here")
	}
	script, err := run(t, "completion", "bash", "--no-descriptions")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "script"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	// The stub prints its own arguments as the last candidate.
	stub := "#!/bin/bash\nprintf 'cn0\\ncn1\\nms0\\nasked:%s\\n' \"$*\" >>\"$0.asked\"\nprintf 'cn0\\ncn1\\nms0\\n:4\\n'\n"
	if err := os.WriteFile(filepath.Join(dir, "rdmalab"), []byte(stub), 0o700); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"rdmalab crash ":                       "cn0 cn1 ms0",
		"rdmalab crash c":                      "cn0 cn1",
		"rdmalab inject loss 10% --link c":     "cn0 cn1",
		"rdmalab inject loss 10% --link=m":     "ms0",
		"rdmalab crash c --for 10s and beyond": "",
	} {
		cmd := exec.Command(bash, "--norc", "--noprofile", "-c", `source "$1/script"
COMP_LINE="$2" COMP_POINT=${#2} COMP_TYPE=9 COMP_KEY=9 COMP_WORDBREAKS=$' \t\n"><=;|&(:'"'"
read -ra COMP_WORDS <<<"$2"; [[ $2 == *" " ]] && COMP_WORDS+=(""); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
compopt() { :; } # outside of a completion it complains
__start_rdmalab
echo "${COMPREPLY[@]}"`, "bash", dir, line)
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if got := strings.Join(strings.Fields(string(out)), " "); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", line, out, err, want)
		}
	}
	asked, err := os.ReadFile(filepath.Join(dir, "rdmalab.asked"))
	if err != nil || !strings.Contains(string(asked), "asked:__completeNoDesc crash c\n") {
		t.Errorf("the program was asked %q, %v", asked, err)
	}
}
