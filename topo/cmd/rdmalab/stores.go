package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// clientHost is where a command's client of the store runs: the first compute host if none was named.
func clientHost(cmd *cobra.Command, rack *spec.Rack, from string) (*control.Client, string, error) {
	if from == "" {
		list := rack.ByRole(spec.Compute)
		if len(list) == 0 {
			return nil, "", fmt.Errorf("rack %s has no compute host: name a host with --from", rack.Name)
		}
		from = list[0].Name
	}
	client, err := hostControl(cmd, from)
	return client, from, err
}

// clientRequest has the host where a command's client runs make a request of a store.
func clientRequest(cmd *cobra.Command, rack *spec.Rack, from, path string, in, out any) error {
	client, host, err := clientHost(cmd, rack, from)
	if err != nil {
		return err
	}
	if err := client.Call(cmd.Context(), http.MethodPost, path, in, out); err != nil {
		return fmt.Errorf("host %s: %w", host, err)
	}
	return nil
}

// parseKey reads a key.
func parseKey(s string) (uint64, error) {
	key, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		return 0, badUse("key %q: want a number from 0 to 2^64-1", s)
	}
	return key, nil
}

func fromFlag(cmd *cobra.Command, from *string) {
	cmd.Flags().StringVar(from, "from", "", "host that runs the client (default the first compute host)")
	if err := cmd.RegisterFlagCompletionFunc("from", completeAllHosts); err != nil {
		panic(fmt.Sprintf("flag --from: %v", err)) // it was defined above
	}
}

// opFlags are the flags of one operation of a store.
func opFlags(cmd *cobra.Command, from *string, verbose *bool) {
	fromFlag(cmd, from)
	cmd.Flags().BoolVarP(verbose, "verbose", "v", false, "say what it cost")
}

// statusPatience bounds the wait for a host that may be frozen. It is not asked then.
const statusPatience = 5 * time.Second

// statusOf is how to ask hosts for their status. Who does not answer does nothing.
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

// noClover refuses what would write into the memory of a store Clover that runs: both stores take the memory of the same servers.
func noClover(rack *spec.Rack, status func(host string) hostd.Status) error {
	for _, h := range rack.ByRole(spec.Metadata) {
		if slices.Contains(status(h.Name).Services, clover.Service) {
			return fmt.Errorf("the store clover is up on %s, and has the memory of the same servers: `rdmalab clover stop` first", h.Name)
		}
	}
	return nil
}

// noTree refuses what would write into the memory of a tree that hosts work on.
func noTree(rack *spec.Rack, status func(host string) hostd.Status) error {
	for _, h := range rack.ByRole(spec.Compute) {
		if status(h.Name).Tree {
			return fmt.Errorf("%s works on a tree sherman in the memory of the same servers: `rdmalab sherman stop` first", h.Name)
		}
	}
	return nil
}
