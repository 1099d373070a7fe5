package console

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var write = flag.Bool("write", false, "write the output of this run into the pages")

const root = "../.."

// Every page with console blocks has the comment that says what the blocks need, so that one of the
// two tests runs them.
func TestEveryPageSaysWhatItNeeds(t *testing.T) {
	pages, err := Pages(root)
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	for _, p := range pages {
		if p.Kind == "" {
			t.Errorf("%s has console blocks: say <!-- console: sim --> or <!-- console: rack -->, or call them text", p.Path)
		}
	}
}

// The console blocks of the simulator show what it prints.
func TestPagesOfTheSimulator(t *testing.T) {
	bin := t.TempDir()
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", filepath.Join(bin, "rdmalab"), "./cmd/rdmalab")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	pages, err := Pages(root)
	if err != nil {
		t.Fatal(err)
	}
	shell := Shell{Dir: t.TempDir(), Env: []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "RDMALAB_RACK="}}
	ran := 0
	for _, p := range pages {
		if p.Kind != Sim {
			continue
		}
		ran++
		now, wrong, err := p.Check(t.Context(), shell)
		if err != nil {
			t.Fatal(err)
		}
		if *write {
			if err := os.WriteFile(filepath.Join(root, p.Path), []byte(strings.Join(now, "\n")), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		for _, w := range wrong {
			t.Error(w)
		}
	}
	if ran == 0 {
		t.Error("no page shows the simulator")
	}
}

func TestMask(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"cn0 -> ms0  WRITE  534.498µs  ok", "cn0 -> ms0  WRITE  1.2ms  ok", true},
		{"cn0 -> ms0  WRITE  534.498µs  ok", "cn1 -> ms0  WRITE  534.498µs  ok", false},
		{`rack "default" is up: 7 hosts and a switch in 242ms`, `rack "docs-12" is up: 7 hosts and a switch in 1.4s`, true},
		{"f1: loss 10% --link cn0", "f1: loss 5% --link cn0", true},
		{"ms0     memory    up       10.77.0.3", "ms0 memory up 10.77.0.3", true},
		{"ms0 up", "ms0 crashed", false},
		{" 65536      200            593.19              451.74", "65536 200 3.35 2.56", true},
		{"in 1m18.67s", "in 12.5s", true},
		{"qp=0xd3d1b4 psn=0x91ba71 len=12288", "qp=0x1 psn=0x2 len=3", true},
	} {
		if got := Mask(c.a) == Mask(c.b); got != c.same {
			t.Errorf("%q and %q: %v\n%q\n%q", c.a, c.b, got, Mask(c.a), Mask(c.b))
		}
	}
}

func TestElision(t *testing.T) {
	for _, c := range []struct {
		want, got string
		same      bool
	}{
		{"a\n…\nd", "a\nb\nc\nd", true},
		{"a\n...", "a", true},
		{"a\n…\nd", "a\nb", false},
		{"a", "a\nb", false},
		{"a\nb", "a", false},
	} {
		if got := same(strings.Split(c.want, "\n"), strings.Split(c.got, "\n")); got != c.same {
			t.Errorf("%q, %q: %v", c.want, c.got, got)
		}
	}
}
