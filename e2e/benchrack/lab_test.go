package main

import (
	"context"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
)

// Each test is run over the kernel's NIC first and over ours directly after, with the same arguments
// but for the index of the address.
func TestDuels(t *testing.T) {
	l := &lab{bench: bench{pick: regexp.MustCompile(".")}}
	for _, s := range setups {
		ds := l.duels(s)
		if len(ds) != 2*len(exchanges) {
			t.Fatalf("%d measures in %s", len(ds), s.name)
		}
		for i := 0; i < len(ds); i += 2 {
			theirs, ours := ds[i], ds[i+1]
			if theirs.base != "" || ours.base != theirs.name || theirs.name != s.name+"/rxe_"+theirs.exchange.name {
				t.Errorf("%s has base %q, %s has base %q", theirs.name, theirs.base, ours.name, ours.base)
			}
			a, b := strings.Join(theirs.args("G", 1), " "), strings.Join(ours.args("G", 1), " ")
			if a != b {
				t.Errorf("%s runs %q, %s runs %q", theirs.name, a, ours.name, b)
			}
		}
	}
	l.pick = regexp.MustCompile("^two/.*_write_8$")
	if got := l.duels(setups[0]); got != nil {
		t.Errorf("measures %v of a setup that is not selected", got)
	}
	if got := l.duels(setups[1]); len(got) != 2 {
		t.Errorf("%d measures are selected", len(got))
	}
}

// Only this project's NIC needs variables, which name what is in the image and what the daemon makes.
func TestEnvironmentInGuests(t *testing.T) {
	if env := nics[0].env("ms0"); env != nil {
		t.Errorf("%v for %s", env, nics[0].name)
	}
	want := []string{rackfile.EnvVerbs + "=/rack/sock/ms0.verbs", uverbs.EnvTree + "=/rack/sock/ms0.sys", "LD_PRELOAD=/rack/sock/librdmalab-verbs.so"}
	if got := nics[1].env("ms0"); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%v, want %v", got, want)
	}
}

// Frames go from one machine to the other; those of a single machine go nowhere, and do not fill up.
func TestLinks(t *testing.T) {
	ends, err := makeLinks(2)
	if err != nil {
		t.Fatal(err)
	}
	for i := range nics {
		if _, err := ends[0][i].WriteString("frame"); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 10)
		if n, err := ends[1][i].Read(b); err != nil || string(b[:n]) != "frame" {
			t.Errorf("link %d: %q, %v", i, b[:n], err)
		}
	}
	closeAll(ends[0])
	closeAll(ends[1])

	if ends, err = makeLinks(1); err != nil {
		t.Fatal(err)
	}
	for range 1000 { // more than a socket has room for
		if _, err := io.WriteString(ends[0][0], strings.Repeat("x", 4096)); err != nil {
			t.Fatal(err)
		}
	}
	closeAll(ends[0])
}

// A client comes again while the server does not listen; other failures of either end the pair.
func TestPair(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	failure := errors.New("broken")
	connected := make(chan struct{})
	server := func(ctx context.Context) ([]byte, error) {
		select {
		case <-connected:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	tries := 0
	out, err := pair(ctx, server, func(context.Context) ([]byte, error) {
		if tries++; tries < 3 {
			return nil, errors.New("Couldn't connect to 10.78.0.1:18515")
		}
		close(connected)
		return []byte("figures"), nil
	})
	if err != nil || string(out) != "figures" || tries != 3 {
		t.Errorf("%q, %v after %d tries", out, err, tries)
	}
	waits := func(ctx context.Context) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() }
	if _, err := pair(ctx, waits, func(context.Context) ([]byte, error) { return nil, failure }); !errors.Is(err, failure) {
		t.Errorf("a client that fails: %v", err)
	}
	refused := func(context.Context) ([]byte, error) { return nil, errors.New("connection refused") }
	if _, err := pair(ctx, func(context.Context) ([]byte, error) { return nil, failure }, refused); !errors.Is(err, failure) {
		t.Errorf("a server that fails: %v", err)
	}
}

func TestNoteIsPrintedAndKept(t *testing.T) {
	tl := tally{note: emulated}
	tl.add("two/rxe_write_8", "msgs/s", "", 1)
	var out strings.Builder
	tl.print(&out)
	if !strings.HasPrefix(out.String(), emulated+"\n") || !strings.HasPrefix(string(tl.benchmarks()), "note: "+emulated+"\n") {
		t.Errorf("no note in\n%s%s", out.String(), tl.benchmarks())
	}
}
