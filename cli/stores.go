package cli

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/store"
	_ "github.com/rdmalab/rdmalab/store/all" // registers the stores
	"github.com/rdmalab/rdmalab/topo/hostd"
)

func fromFlag(cmd *cobra.Command, from *string) {
	cmd.Flags().StringVar(from, "from", "", "host of the rack whose daemon runs the clients of this command (default: the first compute host)")
	completeHost(cmd, "from")
}

func opFlags(cmd *cobra.Command, from *string, verbose *bool) {
	fromFlag(cmd, from)
	cmd.Flags().BoolVarP(verbose, "verbose", "v", false, "also print on standard error how long the operation took, and its network round trips")
}

// statusPatience bounds the wait for the status of a host, which may hang.
const statusPatience = 5 * time.Second

// statusOf returns a function that returns the status of a host. The status is empty if the host
// does not answer.
func statusOf(cmd *cobra.Command) func(host string) hostd.Status {
	return func(host string) (s hostd.Status) {
		client, err := hostControl(cmd, host)
		if err != nil {
			return s
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), statusPatience)
		defer cancel()
		if client.Call(ctx, http.MethodGet, hostd.PathStatus, nil, &s) != nil {
			return hostd.Status{}
		}
		return s
	}
}

// freeFor returns an error if a store is up whose name is not `except`. Most stores use the same
// memory of the memory servers, so a second store would overwrite the first one. The other stores
// use hosts that a second store may use, too. If except is "", no store may be up.
func freeFor(except string, rack *rackfile.Rack, status func(host string) hostd.Status) error {
	for _, s := range store.All() {
		if s.Name == except {
			continue
		}
		hosts, err := s.Places(rack)
		if err != nil {
			continue // a rack without the store's hosts cannot have the store
		}
		for _, h := range hosts {
			if hasStore(status(h), s.Name) {
				return fmt.Errorf("the store %s is up on %s, and the stores of a rack share its hosts and their memory: run `rdmalab %s stop` first", s.Name, h, s.Name)
			}
		}
	}
	return nil
}

func hasStore(st hostd.Status, name string) bool {
	return slices.ContainsFunc(st.Stores, func(s store.Status) bool { return s.Store == name })
}

// notStarted returns an error if the server of the store does not run. Without this check a command
// would wait for the server. If the server's host does not answer, the server may be starting; then
// notStarted returns nil, and the command waits.
func notStarted(c *store.Call, status func(host string) hostd.Status) error {
	if c.Store.Server == nil {
		return nil // the store has no server; a client reports what is missing
	}
	host, err := c.Store.Server(c.Rack)
	if err != nil {
		return err
	}
	if st := status(host); st.Name != "" && !hasStore(st, c.Store.Name) {
		return fmt.Errorf("the store %s is not up on %s; start it: `rdmalab %s start`", c.Store.Name, host, c.Store.Name)
	}
	return nil
}
