package switchd

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
)

// faultControl installs and removes faults and partitions.
type faultControl struct {
	commands *commands
	ports    *ports
	traffic  *traffic
	groups   [][]string // groups of the present partition; only the loop uses it
}

// Partition is the body of POST /partition. If it has one group, its hosts cannot reach the other
// hosts. If it has several groups, hosts of different groups cannot reach each other, and hosts in
// no group reach all hosts.
type Partition struct {
	Groups [][]string `json:"groups"`
}

// Healed is the answer to DELETE /faults.
type Healed struct {
	// Rules is how many active rules were removed.
	Rules int `json:"rules"`
}

// errPartition is the kind of an error for groups that are no valid partition.
var errPartition = errors.New("partition")

// refuses returns why the switch has no use for a rule that is valid by itself. It makes a rule of kind
// pause begin in the next round.
func (f *faultControl) refuses(r *fault.Rule) error {
	var cfg *portqueue.Config
	q := f.traffic.queues
	if q != nil {
		c := q.Config()
		cfg = &c
	}
	err := rackfile.QueuesRefuse(cfg, r)
	if err == nil && r.Kind == fault.Storm {
		q.storm = 0
	}
	return err
}

func (f *faultControl) Faults() (list []fault.Status, err error) {
	err = f.commands.Do(func() { list = f.traffic.plan.List(f.traffic.now) })
	return list, err
}

func (f *faultControl) Inject(r fault.Rule) (out fault.Rule, err error) {
	err = f.commands.Try(func() (err error) {
		if err = f.refuses(&r); err == nil {
			out, err = f.traffic.plan.Add(f.traffic.now, r)
		}
		return err
	})
	return out, err
}

// Replace installs a rule in the place of others (fault.Set.Replace). No frame passes between the end of
// the others and the begin of the rule.
func (f *faultControl) Replace(r fault.Rule) (out fault.Rule, err error) {
	err = f.commands.Try(func() (err error) {
		if err = f.refuses(&r); err == nil {
			out, err = f.traffic.plan.Replace(f.traffic.now, r)
		}
		return err
	})
	return out, err
}

func (f *faultControl) RemoveFault(id string) error {
	return f.commands.Try(func() error { return f.traffic.plan.Remove(id) })
}

// Heal removes the fault rules of a link; "" means all links. It returns how many of them were
// active.
func (f *faultControl) Heal(link string) (n int, err error) {
	err = f.commands.Try(func() (err error) { n, err = f.traffic.plan.Heal(f.traffic.now, link); return err })
	return n, err
}

// activeRules maps hosts to the ids of the active fault rules on their links. Only the loop calls
// it.
func (f *faultControl) activeRules() map[string][]string {
	m := make(map[string][]string)
	for _, r := range f.traffic.plan.List(f.traffic.now) {
		if r.State == fault.Active {
			m[r.Link] = append(m[r.Link], r.ID)
		}
	}
	return m
}

// SetPartition separates groups of hosts. Without groups it ends the partition.
func (f *faultControl) SetPartition(groups [][]string) error {
	return f.commands.Try(func() error {
		ports, err := f.portGroups(groups)
		if err == nil {
			f.groups = groups
			f.traffic.sw.Partition(ports)
		}
		return err
	})
}

// portGroups returns the group number of each port; -1 means that the port is in no group. Only the
// loop calls it.
func (f *faultControl) portGroups(groups [][]string) ([]int, error) {
	if len(groups) == 0 {
		return nil, nil
	}
	of := slices.Repeat([]int{-1}, len(f.ports.hosts))
	for g, names := range groups {
		if len(names) == 0 {
			return nil, fmt.Errorf("%w: a group is empty", errPartition)
		}
		for _, name := range names {
			i, err := f.ports.of(name)
			switch {
			case err != nil:
				return nil, fmt.Errorf("%w: %w", errPartition, err)
			case of[i] >= 0 && of[i] != g:
				return nil, fmt.Errorf("%w: %s is in two groups", errPartition, name)
			}
			of[i] = g
		}
	}
	if len(groups) == 1 {
		for i := range of {
			if of[i] < 0 {
				of[i] = 1
			}
		}
	}
	return of, nil
}

// regroup applies the partition again. It is called after links have changed, because a group may
// name a guest whose link has just been added again.
func (f *faultControl) regroup() {
	if ports, err := f.portGroups(f.groups); err == nil {
		f.traffic.sw.Partition(ports)
	}
}
