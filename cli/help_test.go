package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestHelpListsCommandsUnderHeadings(t *testing.T) {
	root := rootCmd(append(commands(), &cobra.Command{Use: "newcomer", Short: "Of no group", Run: func(*cobra.Command, []string) {}})...)
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs([]string{"--help"})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	text, at := out.String(), 0
	for _, g := range helpGroups() {
		wants := []string{"\n" + g.title}
		for _, c := range g.commands {
			wants = append(wants, "\n  "+c.Name()+" ")
		}
		if g.title == lastGroup {
			wants = append(wants, "\n  completion ", "\n  help ")
		}
		for _, want := range wants {
			i := strings.Index(text[at:], want)
			if i < 0 {
				t.Fatalf("%q is not where it should be:\n%s", want, text)
			}
			at += i
		}
	}
	if !strings.Contains(text[at:], "  newcomer ") {
		t.Errorf("a command without a heading is lost:\n%s", text)
	}
	for _, hidden := range []string{"node-init", "switchd", "timer"} {
		if strings.Contains(text, "  "+hidden+" ") {
			t.Errorf("%s is for people:\n%s", hidden, text)
		}
	}
}
