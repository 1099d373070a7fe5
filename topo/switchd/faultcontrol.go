package switchd

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// faultControl installs and removes faults and partitions.
type faultControl struct {
	commands *commands
	ports    *ports
	traffic  *traffic
	groups   [][]string // groups of the present partition; only the loop uses it
	kept     keptFaults
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

// refuses returns why the switch has no use for a rule that is valid by itself.
func (f *faultControl) refuses(r *fault.Rule) error {
	var cfg *portqueue.Config
	q := f.traffic.queues
	if q != nil {
		c := q.Config()
		cfg = &c
	}
	return rackfile.QueuesRefuse(cfg, r)
}

// change runs f, which changes the rules. Those of kind pause begin and end in the next round.
func (f *faultControl) change(do func() error) error {
	if f.kept.path != "" {
		f.kept.saving.Lock()
		defer f.kept.saving.Unlock()
	}
	var list []fault.Status
	err := f.commands.Try(func() error {
		if q := f.traffic.queues; q != nil {
			q.storm = 0
		}
		err := do()
		list = f.traffic.plan.List(f.traffic.now)
		return err
	})
	if err == nil && f.kept.path != "" {
		f.kept.save(list)
	}
	return err
}

// install installs the rules with which the switch begins: the ones on trunks that were there when the
// switch ended, and those of the rack file, of which the ones on trunks only if there is no file of them. A rule
// of the rack file whose ID is taken gets another one: it was healed, and its ID given to a rule on a trunk.
func (f *faultControl) install(rules []fault.Rule) error {
	kept, known := f.kept.read()
	for _, r := range kept {
		if err := f.begin(r); err != nil {
			f.ports.log.Warn("a fault that was there when the switch ended is not there any more", "id", r.ID, "link", r.Link, "error", err)
		}
	}
	for _, r := range fault.Named(rules) {
		if r.Kind == fault.Tear || known && f.kept.keeps(&r) {
			continue
		}
		if _, taken := f.traffic.plan.Rule(r.ID); taken && len(kept) > 0 {
			f.ports.log.Warn("a fault of the rack file gets another ID, because one that was there when the switch ended has this one", "id", r.ID, "link", r.Link)
			r.ID = ""
		}
		switch err := f.begin(r); {
		case errors.Is(err, fault.ErrTooMany) && len(kept) > 0:
			f.ports.log.Warn("a fault of the rack file has no place beside those that were there when the switch ended", "id", r.ID, "link", r.Link, "error", err)
		case err != nil:
			return fmt.Errorf("fault of the rack file: %w", err)
		}
	}
	return nil
}

// begin installs a rule with which the switch begins.
func (f *faultControl) begin(r fault.Rule) error {
	if err := f.refuses(&r); err != nil {
		return err
	}
	_, err := f.traffic.plan.Add(0, r)
	return err
}

func (f *faultControl) Faults() (list []fault.Status, err error) {
	err = f.commands.Do(func() { list = f.traffic.plan.List(f.traffic.now) })
	return list, err
}

func (f *faultControl) Inject(r fault.Rule) (out fault.Rule, err error) {
	err = f.change(func() (err error) {
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
	err = f.change(func() (err error) {
		if err = f.refuses(&r); err == nil {
			out, err = f.traffic.plan.Replace(f.traffic.now, r)
		}
		return err
	})
	return out, err
}

func (f *faultControl) RemoveFault(id string) error {
	return f.change(func() error { return f.traffic.plan.Remove(id) })
}

// Heal removes the fault rules of a link; "" means all links. It returns how many of them were
// active.
func (f *faultControl) Heal(link string) (n int, err error) {
	err = f.change(func() (err error) { n, err = f.traffic.plan.Heal(f.traffic.now, link); return err })
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
		ports, far, err := f.portGroups(groups)
		if err == nil {
			f.groups = groups
			f.separate(ports, far)
		}
		return err
	})
}

// separate applies the groups of ports and of hosts behind other switches.
func (f *faultControl) separate(ports []int, far map[wire.MAC]int) {
	f.traffic.sw.Partition(ports)
	if f.ports.trunks != nil {
		f.ports.trunks.part(far)
	}
}

// farHosts returns the hosts that are connected to other switches.
func (f *faultControl) farHosts() map[string]wire.MAC {
	far := make(map[string]wire.MAC)
	if t := f.ports.trunks; t != nil {
		rack := t.described()
		for i := range rack.Hosts {
			if h := &rack.Hosts[i]; h.Leaf != t.name {
				far[h.Name] = h.MAC
			}
		}
	}
	return far
}

// portGroups returns the group number of each port, and of each host behind another switch that is in
// a group; -1 means that the port is in no group. Only the loop calls it.
func (f *faultControl) portGroups(groups [][]string) ([]int, map[wire.MAC]int, error) {
	if len(groups) == 0 {
		return nil, nil, nil
	}
	hosts, far := f.farHosts(), make(map[wire.MAC]int)
	of := slices.Repeat([]int{-1}, len(f.ports.hosts))
	for g, names := range groups {
		if len(names) == 0 {
			return nil, nil, fmt.Errorf("%w: a group is empty", errPartition)
		}
		for _, name := range names {
			if mac, ok := hosts[name]; ok {
				if at, taken := far[mac]; taken && at != g {
					return nil, nil, fmt.Errorf("%w: %s is in two groups", errPartition, name)
				}
				far[mac] = g
				continue
			}
			i, err := f.ports.of(name)
			switch {
			case err != nil:
				return nil, nil, fmt.Errorf("%w: %w", errPartition, err)
			case of[i] >= 0 && of[i] != g:
				return nil, nil, fmt.Errorf("%w: %s is in two groups", errPartition, name)
			}
			of[i] = g
		}
	}
	if len(groups) == 1 {
		for i := range of {
			if of[i] < 0 && !f.ports.trunks.isTrunk(i) {
				of[i] = 1
			}
		}
		for _, mac := range hosts {
			if _, named := far[mac]; !named {
				far[mac] = 1
			}
		}
	}
	return of, far, nil
}

// regroup applies the partition again. It is called after links have changed, because a group may
// name a guest whose link has just been added again.
func (f *faultControl) regroup() {
	if ports, far, err := f.portGroups(f.groups); err == nil {
		f.separate(ports, far)
	}
}
