package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/store/trace"
)

// Flags that a trace replaces are refused with it, and the errors of other flags say what to do.
func TestRunFlagsRefused(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good.csv", trace.Header+"\n0,0,put,1,50\n")
	scans := file("scans.csv", trace.Header+"\n0,0,scan,1,50\n")
	for args, want := range map[string]string{
		"--trace " + good + " --mix get=100":             "contradict",
		"--trace " + good + " --rate 5":                  "contradict",
		"--trace nofile":                                 "no such file",
		"--trace " + file("none.csv", trace.Header+"\n"): "no operations",
		"--trace " + file("bad.csv", "1,2,3\n"):          "run convert",
		"--store template --trace " + scans:              "use --store sherman",
		"--mix get=100 --workload a":                     "use one of them",
		"--mix get=90":                                   "must add up to 100",
		"--distribution hot":                             "want zipf",
		"--distribution uniform --zipf 0.5":              "leave it out",
		"--distribution latest --move 5s":                "use zipf or hotspot",
		"--move soon":                                    "like 5s",
		"--value-size 9-1":                               "smallest comes first",
		"--value-size 64=x":                              "is no number",
		"--no-load --load-only":                          "nothing to do",
	} {
		var f runFlags
		cmd := f.command()
		if err := cmd.Flags().Parse(strings.Fields(args)); err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		f.typed = cmd.Flags().Changed
		if err := f.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", args, err, want)
		}
	}
}

// Each host is sent the operations of its clients, and all of them together are the trace.
func TestTraceIsDivided(t *testing.T) {
	var f runFlags
	cmd := f.command()
	if err := cmd.Flags().Parse([]string{"--trace", "../store/trace/small.csv", "--clients", "3"}); err != nil {
		t.Fatal(err)
	}
	f.typed = cmd.Flags().Changed
	if err := f.check(); err != nil || len(f.ops) != 1000 || !f.noLoad || f.config.Keys < 100 {
		t.Fatalf("%d operations on %d keys, %v", len(f.ops), f.config.Keys, err)
	}
	run := storeRun{flags: &f, hosts: []string{"cn0", "cn1", "cn2", "cn3"}}
	list, err := run.requests(false)
	if err != nil || len(list) != 3 {
		t.Fatalf("%d requests, %v", len(list), err)
	}
	sum := 0
	for _, in := range list {
		ops, err := trace.Unpack(in.Trace)
		if err != nil {
			t.Fatal(err)
		}
		for _, op := range ops {
			if op.Client != in.First {
				t.Errorf("client %d's host has an operation of client %d", in.First, op.Client)
			}
		}
		sum += len(ops)
	}
	if sum != 1000 {
		t.Errorf("the hosts have %d operations", sum)
	}
}

// The help of run lists its flags under headings.
func TestFlagGroups(t *testing.T) {
	cmd := runCmd()
	var out bytes.Buffer
	cmd.SetOut(&out)
	if err := cmd.Usage(); err != nil {
		t.Fatal(err)
	}
	text, at := out.String(), 0
	for _, want := range []string{"Flags:", "  what runs:", "--store", "  operations:", "--mix", "  phases and times:", "--rate", "  result:", "--csv"} {
		i := strings.Index(text[at:], want)
		if i < 0 {
			t.Fatalf("%q is missing, or at the wrong place:\n%s", want, text)
		}
		at += i
	}
}
