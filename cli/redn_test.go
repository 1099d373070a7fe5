package cli

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// trace prints each request with the bytes that others have changed, and the result of the condition.
func TestRednTrace(t *testing.T) {
	for _, c := range []struct {
		args []string
		want []string
	}{
		{nil, []string{"ENABLE", "-> 08 00 00 00", "result: 1\n"}},
		{[]string{"--y", "6"}, []string{"-> 05 00 00 08 00 00 00", "result: 2\n"}},
		{[]string{"--stale"}, []string{"result: 2\n"}},
	} {
		var out bytes.Buffer
		root := rootCmd(rednCmd())
		root.SetOut(&out)
		root.SetArgs(append([]string{"redn", "trace"}, c.args...))
		if err := root.Execute(); err != nil {
			t.Fatal(err)
		}
		for _, w := range c.want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%v: no %q in\n%s", c.args, w, out.String())
			}
		}
	}
}

// A picture of a trace has a box for each request, the arrows between requests, and the result. That of
// the guide is compared as a whole by TestReference.
func TestRednTracePicture(t *testing.T) {
	const (
		changes, compares, late, enables = ">changes a request<", ">compares, and changes nothing<", ">changes a request that the NIC has read before: no effect<", ">lets the NIC read and execute requests<"
	)
	for _, c := range []struct {
		args         string
		boxes        int
		want, absent []string
	}{
		{"", 9, []string{changes, enables, ">0  WRITE<", ">1  NOP<", "second 0: if NOP with 5, then WRITE with 0", "8 bytes of data+16 → data+8", ">result: 1<"}, []string{compares, late}},
		{"--y 6", 9, []string{changes, enables, compares, ">0  NOP<", ">1  WRITE<", ">result: 2<"}, []string{late}},
		{"--stale", 8, []string{changes, late, ">result: 2<"}, []string{compares, enables}},
	} {
		file := filepath.Join(t.TempDir(), "x.svg")
		root := rootCmd(rednCmd())
		root.SetOut(io.Discard)
		root.SetArgs(append([]string{"redn", "trace", "-w", file}, strings.Fields(c.args)...))
		if err := root.Execute(); err != nil {
			t.Fatal(err)
		}
		svg, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range c.want {
			if !bytes.Contains(svg, []byte(w)) {
				t.Errorf("%q: no %q in\n%s", c.args, w, svg)
			}
		}
		for _, w := range c.absent {
			if bytes.Contains(svg, []byte(w)) {
				t.Errorf("%q: %q in\n%s", c.args, w, svg)
			}
		}
		if n := bytes.Count(svg, []byte("<rect")) - 1; n != c.boxes {
			t.Errorf("%q: %d boxes, want %d", c.args, n, c.boxes)
		}
	}
	root := rootCmd(rednCmd())
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	root.SetArgs([]string{"redn", "trace", "-w", filepath.Join(t.TempDir(), "no", "x.svg")})
	if root.Execute() == nil {
		t.Error("a picture in a folder that does not exist is written")
	}
}

// `redn turing` prints what a machine leaves, and refuses what is no machine.
func TestRednTuring(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", "the machine halts after 107 steps and 1.00635ms\n10111111111111\n ^\n"},
		{"--machine 1RH1RA --tape 11111", "halts after 6 steps"},
		{"--machine 1RH1RA --tape 11111 --limit 6", "halts after 6 steps"},
		{"--machine 1RH1RA --tape 11111 --limit 5", "was ended after 5 steps"},
		{"--machine 1RA1RA --cells 10", "error: the machine has left the tape of 10 cells after 5 steps"},
		{"--machine 1RA", "error: --machine: state A"},
		{"--tape 12", "want 0 and 1 alone"},
		{"--tape 111 --cells 4", "2 fit between"},
		{"--cells 0", "want 1 to"},
		{"--limit 0", "want 1 to"},
	} {
		root, out := rootCmd(rednCmd()), new(bytes.Buffer)
		root.SetArgs(append([]string{"redn", "turing"}, strings.Fields(c.args)...))
		root.SetOut(out)
		root.SetErr(out)
		got := ""
		if err := root.Execute(); err != nil {
			got = "error: " + err.Error()
		} else {
			got = out.String()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("redn turing %s: %q, want %q", c.args, got, c.want)
		}
	}
}
