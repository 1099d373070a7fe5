package cli

import (
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/swordbox/lookuptable"
	"github.com/rdmalab/rdmalab/topo/switchd"
)

func lookupPoolCmd() *cobra.Command {
	var gone bool
	cmd := &cobra.Command{
		Use:   "pool HOST…",
		Short: "Choose the hosts that get the new connections to a virtual address",
		Args:  cobra.MinimumNArgs(1), ValidArgsFunction: arguments(hostNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, _, err := rackOf(cmd)
			if err != nil {
				return err
			}
			var pool []netip.Addr
			for _, name := range args {
				addrs := r.Addresses(name)
				if len(addrs) == 0 {
					return badUse("%.60q is no host of the rack", name)
				}
				pool = append(pool, addrs[0])
			}
			var list []rules.Rule
			if err := askBox(cmd, http.MethodGet, "/rules", nil, &list); err != nil {
				return err
			}
			in, drained := withPool(list, pool, gone)
			if in.Rules == nil {
				return errors.New("no rule has a virtual address; add one: `rdmalab switch rules add server=cn0 action=lookup table=ms0 vip=web vport=80 pool=web0,web1`")
			}
			if err := askBox(cmd, http.MethodPut, "/rules", in, &list); err != nil {
				return err
			}
			names, err := namesOf(cmd)
			if err != nil {
				return err
			}
			for i := range drained {
				drained[i] = names.Of(netip.MustParseAddr(drained[i]))
			}
			return say(cmd, "new connections go to %s; %s", strings.Join(args, ", "), either(len(drained) == 0, "no other host has connections", strings.Join(drained, ", ")+
				either(len(drained) == 1, " keeps those that it has", " keep those that they have")))
		},
	}
	cmd.Flags().BoolVar(&gone, "gone", false, "the hosts that are not named lose their connections")
	return cmd
}

// withPool returns the texts of rules, of which those with a virtual address have another pool, and the
// hosts that get no new connections now: those of the former pools. If gone is true, these lose their
// connections. Without a virtual address the result has no rules.
func withPool(list []rules.Rule, pool []netip.Addr, gone bool) (in switchd.RuleTexts, drained []string) {
	found := false
	words := func(list []netip.Addr) (out []string) {
		for _, a := range list {
			out = append(out, a.String())
		}
		return out
	}
	for i := range list {
		r := &list[i]
		if l := lookuptable.LayoutOf(r); r.Action == lookuptable.Lookups && l.VIP.IsValid() {
			found = true
			r.Options[lookuptable.KeyPool] = strings.Join(words(pool), ",")
			delete(r.Options, lookuptable.KeyDrain)
			var rest []string
			for _, a := range slices.Concat(l.Pool, l.Drain) {
				if text := a.String(); !gone && !slices.Contains(pool, a) && !slices.Contains(rest, text) {
					rest = append(rest, text)
				}
			}
			if len(rest) > 0 {
				r.Options[lookuptable.KeyDrain] = strings.Join(rest, ",")
			}
			drained = rest
		}
		in.Rules = append(in.Rules, r.String())
	}
	if !found {
		in.Rules = nil
	}
	return in, drained
}
