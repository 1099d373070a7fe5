package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Commands that a text tells the user to type name the rack and the program, where a command without them would mean
// another one.
func TestHints(t *testing.T) {
	root := rootCmd(listedCommands()...)
	for _, c := range []struct{ text, rack, want string }{
		{"see `rdmalab status`", "", "see `rdmalab status`"},
		{"see `rdmalab status`", "lab", "see `rdmalab status --rack lab`"},
		{"`rdmalab logs cn0` has more, `rdmalab restart cn0` starts it again", "lab", "`rdmalab logs --rack lab cn0` has more, `rdmalab restart --rack lab cn0` starts it again"},
		{"end it by `rdmalab exec cn0 -- kill 1`", "lab", "end it by `rdmalab exec --rack lab cn0 -- kill 1`"},
		{"see `rdmalab switch connections adopt`", "lab", "see `rdmalab switch connections adopt --rack lab`"},
		{"`rdmalab up -f` the rack file", "lab", "`rdmalab up --rack lab -f` the rack file"},
		{"`rdmalab clover start --fresh` overwrites it", "lab", "`rdmalab clover start --rack lab --fresh` overwrites it"},
		{"`RDMALAB_KEEP=64MiB rdmalab up`: the switch", "lab", "`RDMALAB_KEEP=64MiB rdmalab up --rack lab`: the switch"},
		{"`rdmalab capture cn0 -w x.pcapng` while it runs, then `rdmalab dump x.pcapng`", "lab", "`rdmalab capture --rack lab cn0 -w x.pcapng` while it runs, then `rdmalab dump x.pcapng`"},
		{"run `rdmalab down --rack other`", "lab", "run `rdmalab down --rack other`"},
		{"`rdmalab doctor` says how; see `rdmalab up --help`; `rdmalab sim` lists them", "lab", "`rdmalab doctor` says how; see `rdmalab up --help`; `rdmalab sim` lists them"},
		{"rdmalab's page, `make up` and `rdmalab`", "lab", "rdmalab's page, `make up` and `rdmalab`"},
	} {
		if got := (hints{root: root, program: productName, rack: c.rack}).text(c.text); got != c.want {
			t.Errorf("rack %q: %s\n got %s\nwant %s", c.rack, c.text, got, c.want)
		}
		own := strings.NewReplacer("`rdmalab", "`mine", "MiB rdmalab", "MiB mine").Replace(c.want)
		if got := (hints{root: root, program: "mine", rack: c.rack}).text(c.text); got != own {
			t.Errorf("program mine, rack %q: %s\n got %s\nwant %s", c.rack, c.text, got, own)
		}
	}
	for _, name := range rackless {
		if name != "help" && !slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == name }) {
			t.Errorf("%s has no rack, and is no command", name)
		}
	}
}

// The rack of hints is that of the command, unless a command without --rack has the same.
func TestHintsOf(t *testing.T) {
	for _, c := range []struct{ environment, flag, want string }{
		{"", "", ""}, {"", "lab", "lab"}, {"lab", "", ""}, {"lab", "lab", ""}, {"lab", "default", "default"}, {"", "default", ""},
	} {
		t.Setenv(rackEnv, c.environment)
		root := rootCmd(statusCmd())
		cmd := root.Commands()[0]
		if c.flag != "" {
			if err := root.PersistentFlags().Set("rack", c.flag); err != nil {
				t.Fatal(err)
			}
		}
		if got := hintsOf(cmd).rack; got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
	dir := t.TempDir()
	for _, name := range []string{"mine", "found"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	t.Setenv("PATH", filepath.Join(dir, "none")+":"+dir)
	for path, want := range map[string]string{
		"rdmalab": "rdmalab", "/usr/bin/rdmalab": "rdmalab", "bin/rdmalab": "bin/rdmalab", "/tmp/go-build1/b001/exe/main": "rdmalab", "/tmp/cli.test": "rdmalab",
		"./elsewhere/mine": "./elsewhere/mine", "/opt/lab/mine": "/opt/lab/mine", "found": "found", "./found": "found", dir + "/mine": "mine", "/a b/mine": "'/a b/mine'",
	} {
		if got := programCalled([]string{path}); got != want {
			t.Errorf("%s is called %s, want %s", path, got, want)
		}
	}
}

// Commands have the path by which a program was started; what it says begins with its name.
func TestHintsOfAPath(t *testing.T) {
	h := hints{root: rootCmd(listedCommands()...), program: "./mine", rack: "lab"}
	if got, want := h.error(errors.New("see `rdmalab status`")), "mine: see `./mine status --rack lab`"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := h.named("  rdmalab up -f x.yaml"), "  ./mine up -f x.yaml"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The help of a program with another name shows that name in commands, and leaves other words.
func TestHelpOfAnOwnProgram(t *testing.T) {
	h := hints{root: rootCmd(listedCommands()...), program: "mine"}
	for text, want := range map[string]string{
		"Usage:\n  rdmalab [command]":                      "Usage:\n  mine [command]",
		"  sudo rdmalab up -f x.yaml":                      "  sudo mine up -f x.yaml",
		"(see `rdmalab perf --help`)":                      "(see `mine perf --help`)",
		"/run/rdmalab up to":                               "/run/rdmalab up to",
		"rdmalab is a rack; rdmalab --rack lab status":     "rdmalab is a rack; mine --rack lab status",
		"git clone rdmalab/rdmalab, com.rdmalab.host: cn0": "git clone rdmalab/rdmalab, com.rdmalab.host: cn0",
	} {
		if got := h.named(text); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Commands that have a line of their own are rewritten where a text is made of such lines.
func TestHintsInLines(t *testing.T) {
	h := hints{root: rootCmd(listedCommands()...), program: "mine", rack: "lab"}
	const text = "Draw it:\n\n    rdmalab dump --ladder x.pcapng\n    rdmalab exercise lost-packet --check --answer lost=…\n\nA hint: rdmalab exercise lost-packet --hint (there are 3)"
	const want = "Draw it:\n\n    mine dump --ladder x.pcapng\n    mine exercise --rack lab lost-packet --check --answer lost=…\n\n" +
		"A hint: mine exercise --rack lab lost-packet --hint (there are 3)"
	if got := h.lines(text); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A writer of hints reports the length of what it was given.
func TestHintWriter(t *testing.T) {
	var out bytes.Buffer
	w := hintWriter{&out, hints{root: rootCmd(statusCmd()), program: "mine"}}
	if n, err := w.Write([]byte("see `rdmalab status`\n")); n != len("see `rdmalab status`\n") || err != nil || out.String() != "see `mine status`\n" {
		t.Errorf("%d %v %q", n, err, &out)
	}
}
