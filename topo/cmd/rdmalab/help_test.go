package main

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
		for _, want := range append([]string{"\n" + g.title}, g.commands...) {
			i := strings.Index(text[at:], "\n  "+want+" ")
			if strings.HasPrefix(want, "\n") {
				i = strings.Index(text[at:], want)
			}
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
