package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// writing matches the help of a flag that names a file or a folder which the command writes.
var writing = regexp.MustCompile(`(?i)\b(write|draw|written|appended|record)\b.*\b(file|folder|FILE)\b|\b(picture|file) to write\b|^file to which|^folder of|folder which is made`)

// Each flag that names what a command writes is known to be one, and a place that cannot be written is refused before
// the command begins: the error is about the command line, and names the folder.
func TestPlacesThatCannotBeWrittenAreRefusedAtOnce(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv(rackEnv, missingRack)
	if err := os.WriteFile("plain", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n := 0
	everyCommand(func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			kind := f.Annotations[writesNote]
			if writes := writing.MatchString(f.Usage) && f.Value.Type() == "string" && f.Name != "on"; writes != (len(kind) > 0) {
				t.Errorf("%s --%s %q: writes %v, and is noted as %v", cmd.CommandPath(), f.Name, f.Usage, writes, kind)
			}
			if len(kind) == 0 {
				return
			}
			n++
			was := f.Value.String()
			for place, want := range map[string]string{"missing/folder/x.svg": "missing/folder", "plain/x.svg": "plain is no folder", "/proc/x.svg": "folder /proc cannot be written"} {
				if kind[0] == outFolder && strings.HasPrefix(place, "missing") {
					continue // it is made
				}
				must(cmd.Flags().Set(f.Name, place))
				if err := checkOutputs(cmd, nil); !isUse(err) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s --%s %s: %v, want %s", cmd.CommandPath(), f.Name, place, err, want)
				}
			}
			must(cmd.Flags().Set(f.Name, was))
		})
	})
	if n < 20 {
		t.Errorf("%d flags that name what is written", n)
	}
	for line, want := range map[string]string{
		"graph -w missing/folder/x.svg":                 "-w missing/folder/x.svg: there is no folder missing/folder; make it first: mkdir -p missing/folder",
		"graph -w .":                                    "-w .: that is a folder; name a file in it",
		"graph -w plain/x.svg":                          "plain is no folder",
		"redn trace --x 1 -w missing/x":                 "there is no folder missing;",
		"capture cn0 -w missing/x":                      "there is no folder missing;",
		"capture cn0 --ladder -w missing/x.svg":         "there is no folder missing;",
		"dump none.pcapng --ladder -w missing/x.svg":    "there is no folder missing;",
		"run sweep --over clients=1 -w missing/x.jsonl": "there is no folder missing;",
		"run plot none.jsonl -w missing/x.svg":          "there is no folder missing;",
		"run ycsb --spans missing/x.json":               "there is no folder missing;",
		"sim transport --pcap missing/x.pcapng":         "there is no folder missing;",
		"switch traced -w missing/x.pcapng":             "there is no folder missing;",
		"image --file missing/x.tar":                    "there is no folder missing;",
		"experiment dcqcn --out plain/x":                "plain is no folder",
		"profile --dir plain/x":                         "plain is no folder",
		"bundle plain/x":                                "plain is no folder",
		"cni install --bin plain/bin":                   "plain is no folder",
		"run ycsb --spans http://127.0.0.1:1/missing/":  "is not up",
	} {
		_, err := run(t, strings.Fields(line)...)
		if err == nil || !strings.Contains(err.Error(), want) || isUse(err) == (want == "is not up") {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
	if list, err := filepath.Glob("*"); err != nil || len(list) != 1 {
		t.Errorf("the commands have left %q, %v", list, err)
	}
}

// A user who may not write a folder is told so at once, and so is one whose environment names such a place.
func TestFolderThatIsNotTheUsers(t *testing.T) {
	dir := t.TempDir()
	if err := checkOutput(outFile, filepath.Join(dir, "x")); err != nil {
		t.Error(err)
	}
	if err := checkOutput(outFolder, filepath.Join(dir, "a/b/c")); err != nil {
		t.Error(err)
	}
	closed := "/proc/self/fdinfo" // where not even root may make a file
	for _, kind := range []string{outFile, outFolder} {
		if err := checkOutput(kind, closed+"/x"); err == nil || !strings.Contains(err.Error(), closed+" cannot be written: ") {
			t.Errorf("%s: %v", kind, err)
		}
	}
	root := rootCmd(commands()...)
	for env, args := range map[string][]string{junitEnv: {"sim", "transport"}, bundlesEnv: {"run", "ycsb"}} {
		t.Setenv(env, closed+"/x")
		if err := checkEnvOutputs(root, args); !isUse(err) || !strings.Contains(err.Error(), env+"="+closed) {
			t.Errorf("%s: %v", env, err)
		}
		if err := checkEnvOutputs(root, []string{"version"}); err != nil {
			t.Error(err)
		}
		t.Setenv(env, filepath.Join(dir, "made/x"))
		if err := checkEnvOutputs(root, args); err != nil {
			t.Error(err)
		}
	}
}
