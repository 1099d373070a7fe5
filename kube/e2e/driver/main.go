// driver is the program of a Pod that has the clients of a store work on a rack, and prints whether their history is
// linearizable. The clients are threads of the host whose NIC the Pod has: the driver asks it by its control socket. For tests.
//
//	driver check STORE HOST SERVER [loss]    until `driver end STORE HOST`
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/rdmalab/rdmalab/kube/node"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/store"
)

// What the clients do: few keys, so that they meet, and a pause, so that the history of some minutes can be checked.
const (
	clients = 4
	keys    = 32
	value   = 100 // bytes
	every   = 100 * time.Millisecond
	rounds  = 10_000
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "driver:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 3 {
		return fmt.Errorf("arguments %q", args)
	}
	c := control.NewClient(filepath.Join(node.Mounted, args[2]+".sock"))
	path := store.Paths + args[1] + "/"
	if args[0] == "end" {
		return c.Call(context.Background(), http.MethodPost, path+store.PathHistoryEnd, nil, nil)
	}
	in := store.HistoryRequest{
		Clients: clients, Rounds: rounds, Keys: keys, Base: uint64(time.Now().UnixNano()) &^ 0xffff, Value: value, Seed: 1, Every: every,
		Loss: len(args) > 4 && args[4] == "loss",
	}
	in.Server, in.MaxValue = args[3], value
	var v store.Verdict
	if err := c.Call(context.Background(), http.MethodPost, path+store.PathHistory, in, &v); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(v)
}
