package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/topo/hostd"
)

// A store only has to register itself to get its commands and its place in the help and in run, and
// other stores refuse to start beside it.
func TestAThirdStoreHasCommands(t *testing.T) {
	none := func(*pflag.FlagSet) func(*store.Call) (store.Result, error) {
		return func(*store.Call) (store.Result, error) { return nil, nil }
	}
	c := store.Command{Short: "Do it", New: none}
	remove := store.Register(store.Store{
		Name: "tiny", Title: "Tiny", Scans: true, Note: "small", Node: func(store.Host) store.Node { return nil },
		Commands: store.Commands{
			Short: "A third store", Help: "# rdmalab tiny\n\nIt is tiny.\n\n# rdmalab tiny stat\n\n```sh\nrdmalab tiny stat --own\n```\n", Start: c, Stop: store.Command{Short: "Stop it"}, Stat: c, Check: c, Load: store.Command{Short: "Load it"},
			Prepare: func(*store.Call, store.Workload) (bool, error) { return false, nil },
		},
	})
	defer remove()
	cmd, _, err := rootCmd(commands()...).Find([]string{"tiny"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, sub := range cmd.Commands() {
		names = append(names, sub.Name())
	}
	for _, want := range []string{"start", "stop", "stat", "check", "load", "scan", "shell", "get", "put", "insert", "delete"} {
		if !slices.Contains(names, want) {
			t.Errorf("tiny has no %s: %v", want, names)
		}
	}
	if slices.Contains(names, "upsert") {
		t.Error("upsert of a store without it")
	}
	out, err := run(t, "--help")
	if err != nil || !strings.Contains(out, "A third store") {
		t.Errorf("help: %v\n%s", err, out)
	}
	for args, want := range map[string]string{
		"tiny --help":       "It is tiny.\n",                 // the store's own description,
		"tiny stat --help":  "\n  rdmalab tiny stat --own\n", // and its own example
		"tiny check --help": "\n  rdmalab tiny check\n",      // what all stores share
	} {
		if out, err := run(t, strings.Fields(args)...); err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v; want %q in\n%s", args, err, want, out)
		}
	}
	out, err = run(t, "run", "--help")
	if err != nil || !strings.Contains(strings.Join(strings.Fields(out), " "), "tiny (small)") {
		t.Errorf("help of run: %v\n%s", err, out)
	}
	for args, want := range map[string]string{
		"tiny get":                                    "too few arguments",
		"tiny get seven":                              "want a number",
		"run ycsb --store tiny --share-qp 2":          "use --store clover",
		"run ycsb --store tiny --cache client":        "use --store clover",
		"run ycsb --store clover --workload e":        "use --store sherman or tiny",
		"run ycsb --store tine":                       `store "tine" is unknown: did you mean tiny? there are clover, `, // and a copy of the template, if there is one
		"tiny start --rack " + missingRack:            "is not up",
		"run ycsb --store tiny --rack " + missingRack: "is not up",
	} {
		if _, err := run(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", args, err, want)
		}
	}
	rack := &rackfile.Rack{Hosts: []rackfile.Host{{Name: "cn0", Role: rackfile.Compute}}}
	status := func(string) hostd.Status { return hostd.Status{Stores: []store.Status{{Store: "tiny"}}} }
	if err := freeFor("clover", rack, status); err == nil || !strings.Contains(err.Error(), "`rdmalab tiny stop`") {
		t.Errorf("clover beside tiny: %v", err)
	}
}

// A command that needs the server of a store fails at once if the server does not run, and its
// error says how to start the store. If the server's host does not answer, the command waits,
// because the host may be starting.
func TestStoreThatWasNotStarted(t *testing.T) {
	s, err := store.Find("clover")
	if err != nil {
		t.Fatal(err)
	}
	call := &store.Call{Store: s, Rack: &rackfile.Rack{Hosts: []rackfile.Host{{Name: "md0", Role: rackfile.Metadata}}}}
	for _, c := range []struct {
		status hostd.Status
		want   string
	}{
		{hostd.Status{Name: "md0"}, "not up on md0; start it: `rdmalab clover start`"},
		{hostd.Status{Name: "md0", Stores: []store.Status{{Store: "clover"}}}, ""},
		{hostd.Status{}, ""},
	} {
		err := notStarted(call, func(string) hostd.Status { return c.status })
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v; want %q", c.status, err, c.want)
		}
	}
}
