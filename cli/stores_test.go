package cli

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/topo/hostd"
)

// All stores use the memory of the same servers: each refuses to start while another one is up, and
// its error says on which host that one is and how to stop it.
func TestStoresDoNotTakeEachOthersMemory(t *testing.T) {
	rack := &rackfile.Rack{Name: "r", Hosts: []rackfile.Host{
		{Name: "cn0", Role: rackfile.Compute}, {Name: "cn1", Role: rackfile.Compute}, {Name: "md0", Role: rackfile.Metadata}, {Name: "ms0", Role: rackfile.Memory},
	}}
	hosts := map[string]hostd.Status{}
	status := func(host string) hostd.Status { return hosts[host] }
	refused := func(err error, want ...string) {
		t.Helper()
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%v; want %q", err, w)
			}
		}
	}
	free := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	free(freeFor("sherman", rack, status)) // no host of the rack answers
	free(freeFor("clover", rack, status))
	hosts["md0"] = hostd.Status{Stores: []store.Status{{Store: "clover"}}}
	refused(freeFor("sherman", rack, status), "md0", "`rdmalab clover stop`")
	free(freeFor("clover", rack, status))
	hosts["md0"] = hostd.Status{Services: []string{"perf"}}
	hosts["cn1"] = hostd.Status{Stores: []store.Status{{Store: "sherman"}}}
	free(freeFor("sherman", rack, status))
	refused(freeFor("clover", rack, status), "cn1", "`rdmalab sherman stop`")
}

// The start command of each store asks whether another store is up before it sends any request.
func TestEveryStoreAsksForOthers(t *testing.T) {
	rack := &rackfile.Rack{Name: "r", Hosts: []rackfile.Host{
		{Name: "cn0", Role: rackfile.Compute}, {Name: "md0", Role: rackfile.Metadata}, {Name: "ms0", Role: rackfile.Memory}, {Name: "ms1", Role: rackfile.Memory},
	}}
	up := errors.New("another store is up")
	for _, s := range store.All() {
		start := s.Commands.Start.New(pflag.NewFlagSet(s.Name, pflag.ContinueOnError))
		_, err := start(&store.Call{
			Context: t.Context(), Store: s, Rack: rack, Err: io.Discard, Free: func() error { return up },
			Ask: func(_ context.Context, _, path string, _, _ any) error { return errors.New("a request: " + path) },
		})
		if !errors.Is(err, up) {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
}

// kvcs has all keys on each replica: its check accepts no loss of keys.
func TestCheckOfKvcsHasNoLoss(t *testing.T) {
	for name, has := range map[string]bool{"kvcs": false, "nictable": true} {
		s, err := store.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
		s.Commands.Check.New(fs)
		if (fs.Lookup("loss") != nil) != has {
			t.Errorf("%s check has the flag --loss: %v, want %v", name, !has, has)
		}
	}
}

// Flags of earlier versions are accepted; help shows only their present names.
func TestRenamedFlags(t *testing.T) {
	for _, c := range []struct {
		cmd      *cobra.Command
		old, now string
	}{
		{runCmd(), "value", "value-size"},
		{runCmd(), "patience", "op-timeout"},
		{perfCmd(), "patience", "op-timeout"},
		{pingpongCmd(), "patience", "op-timeout"},
	} {
		fs := c.cmd.Flags()
		if err := fs.Parse([]string{"--" + c.old, "7s"}); err != nil || !fs.Changed(c.now) || fs.Lookup(c.now).Value.String() != "7s" {
			t.Errorf("%s --%s: --%s is %v, %v", c.cmd.Name(), c.old, c.now, fs.Lookup(c.now).Value, err)
		}
		if usage := c.cmd.UsageString(); strings.Contains(usage, "--"+c.old+" ") || !strings.Contains(usage, "--"+c.now) {
			t.Errorf("%s: help has --%s, or lacks --%s", c.cmd.Name(), c.old, c.now)
		}
	}
}

// Help and reference list the commands of a store in one order, each time that they are made.
func TestCommandsOfAStoreHaveOneOrder(t *testing.T) {
	names := func(s *store.Store) (out []string) {
		for _, c := range storeCmd(s).Commands() {
			out = append(out, c.Name())
		}
		return out
	}
	for _, s := range store.All() {
		want := names(s)
		for range 30 {
			if got := names(s); !slices.Equal(got, want) {
				t.Fatalf("%s has the commands %v, then %v", s.Name, want, got)
			}
		}
	}
}
