package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/trunk"
	"github.com/rdmalab/rdmalab/topo/machines"
	"github.com/rdmalab/rdmalab/topo/switchd"
)

// errStrict means that the network has lost something that RC has healed.
var errStrict = errors.New("strict")

// strictly measures. On a rack whose trunks are strict, it returns an error also if the network between
// machines has lost something of a trunk meanwhile.
func strictly(cmd *cobra.Command, measure func() error) error {
	r, paths, err := rackOf(cmd)
	if err != nil || r.Fabric == nil || !r.Fabric.Strict {
		return measure() // which reports the error
	}
	before, err := trunkCounters(cmd.Context(), r, paths)
	if err != nil {
		return err
	}
	err = measure()
	if cmd.Context().Err() != nil {
		return err
	}
	select {
	case <-time.After(2 * trunk.Interval): // the loss of the last datagrams shows when a probe comes behind them
	case <-cmd.Context().Done():
	}
	after, unread := trunkCounters(cmd.Context(), r, paths)
	if unread != nil {
		return errors.Join(err, unread)
	}
	return errors.Join(err, losses(before).until(after))
}

// losses are the counters of the ends of trunks, of which it is about what the network has lost.
type losses map[machines.End]trunk.Stats

// trunkCounters reads the counters of the ends of all trunks between machines.
func trunkCounters(ctx context.Context, r *rackfile.Rack, paths rackfile.Paths) (map[machines.End]trunk.Stats, error) {
	list := make(map[machines.End]trunk.Stats)
	err := onSwitches(r, paths, func(name string, client *control.Client) error {
		if r.Machine != "" && r.MachineOf(name) != r.Machine {
			return nil
		}
		var c switchd.Counters
		if err := ask(ctx, client, name, http.MethodGet, "/counters", nil, &c); err != nil {
			return err
		}
		for _, p := range c.Ports {
			if p.Trunk != nil {
				list[machines.End{Trunk: p.Host, At: name}] = *p.Trunk
			}
		}
		return nil
	})
	return list, err
}

// until returns an error for what is lost between two readings. A switch that was started again in between
// counts from 0.
func (l losses) until(after losses) error {
	var texts []string
	ends := slices.SortedFunc(maps.Keys(after), func(a, b machines.End) int { return strings.Compare(a.Trunk+a.At, b.Trunk+b.At) })
	for _, end := range ends {
		was, is := l[end], after[end]
		if is.Started != was.Started {
			was = trunk.Stats{}
		}
		if is.Missed() > was.Missed() {
			texts = append(texts, fmt.Sprintf("%s has lost %s on the way to %s", end.Trunk, count(int(is.Missed()-was.Missed()), "datagram"), end.At))
		}
		if is.Silences > was.Silences {
			texts = append(texts, fmt.Sprintf("%s was silent for %s", end.Trunk, end.At))
		}
	}
	for end := range l {
		if _, ok := after[end]; !ok {
			texts = append(texts, fmt.Sprintf("%s does not say any more what %s has lost", end.At, end.Trunk))
		}
	}
	if texts == nil {
		return nil
	}
	slices.Sort(texts)
	return fmt.Errorf("%w: the network between the switches was not whole during the run: %s. Look at the network, or leave out `strict` in the rack file", errStrict, strings.Join(texts, ", "))
}
