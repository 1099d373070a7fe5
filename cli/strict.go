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
	before, err := trunkLosses(cmd.Context(), r, paths)
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
	after, unread := trunkLosses(cmd.Context(), r, paths)
	if unread != nil {
		return errors.Join(err, unread)
	}
	return errors.Join(err, before.until(after))
}

// trunkEnd is an end of a trunk: the trunk's name, and the switch.
type trunkEnd struct{ trunk, at string }

// losses are what ends of trunks miss.
type losses map[trunkEnd]trunk.Stats

// trunkLosses reads what the ends of all trunks between machines miss.
func trunkLosses(ctx context.Context, r *rackfile.Rack, paths rackfile.Paths) (losses, error) {
	list := make(losses)
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
				list[trunkEnd{p.Host, name}] = *p.Trunk
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
	ends := slices.SortedFunc(maps.Keys(after), func(a, b trunkEnd) int { return strings.Compare(a.trunk+a.at, b.trunk+b.at) })
	for _, end := range ends {
		was, is := l[end], after[end]
		if is.Received < was.Received {
			was = trunk.Stats{}
		}
		if is.Missed() > was.Missed() {
			texts = append(texts, fmt.Sprintf("%s has lost %s on the way to %s", end.trunk, count(int(is.Missed()-was.Missed()), "datagram"), end.at))
		}
		if is.Silences > was.Silences {
			texts = append(texts, fmt.Sprintf("%s was silent for %s", end.trunk, end.at))
		}
	}
	for end := range l {
		if _, ok := after[end]; !ok {
			texts = append(texts, fmt.Sprintf("%s does not say any more what %s has lost", end.at, end.trunk))
		}
	}
	if texts == nil {
		return nil
	}
	slices.Sort(texts)
	return fmt.Errorf("%w: the network between the machines was not whole during the run: %s. Look at the network, or leave out `strict` in the rack file", errStrict, strings.Join(texts, ", "))
}
