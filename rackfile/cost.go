package rackfile

import (
	"fmt"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/units"
)

// ParseCost reads a cost file: the costs of a NIC, of links, of a switch, of clients and of a
// metadata server. The file's key base may name another cost model, which the function base
// returns. A cost that is missing in the file is taken from that model; without a key base it is
// zero. If the function base is nil, the key base is an error. The returned error is an Errors:
// every mistake has the name of the file, line and column.
func ParseCost(name string, data []byte, base func(name string) (*cost.Model, error)) (*cost.Model, error) {
	d := &decoder{file: name}
	root := d.syntax(data)
	if len(d.errs) > 0 {
		return nil, d.errs
	}
	m := d.costFile(root, base)
	if len(d.errs) == 0 {
		if err := m.Validate(); err != nil {
			d.errorf(root, "%v", err)
		}
	}
	if len(d.errs) > 0 {
		return nil, d.errs
	}
	return m, nil
}

// costFile reads the mapping of a cost file. It reads the key base first, wherever this key stands
// in the file.
func (d *decoder) costFile(n ast.Node, base func(string) (*cost.Model, error)) *cost.Model {
	m := new(cost.Model)
	sections := []entry{
		set(d, "name", &m.Name, func(s string) (string, error) { return s, checkName("name", s, maxRackName) }),
		{key: "base", set: func(ast.Node) {}},
		d.section("link",
			set(d, "rate", &m.Link.Rate, units.ParseRate),
			set(d, "delay", &m.Link.Delay, units.ParseDuration),
			set(d, "overhead", &m.Link.Overhead, parseCount),
		),
		d.section("switch",
			set(d, "delay", &m.Switch.Delay, units.ParseDuration),
			set(d, "cores", &m.Switch.Cores, number(0, cost.MaxCores)),
			set(d, "forward", &m.Switch.Forward, parseOps),
			set(d, "rewrite", &m.Switch.Rewrite, parseOps),
		),
		d.section("client",
			set(d, "post", &m.Client.Post, units.ParseDuration),
			set(d, "poll", &m.Client.Poll, units.ParseDuration),
			set(d, "get", &m.Client.Get, units.ParseDuration),
			set(d, "put", &m.Client.Put, units.ParseDuration),
		),
		d.section("metadata",
			set(d, "call", &m.Metadata.Call, units.ParseDuration),
			set(d, "threads", &m.Metadata.Threads, number(0, cost.MaxCores)),
		),
		d.costNIC(&m.NIC),
	}
	if k, ok := n.(ast.MapNode); ok {
		for it := k.MapRange(); it.Next(); {
			if key, _ := scalar(it.KeyValue().Key); key == "base" && kindOf(it.KeyValue().Value) != "nothing" {
				if b, ok := text(d, it.KeyValue().Value, "base", lookup(base)); ok {
					*m = *b
				}
			}
		}
	}
	d.mapping(n, "a cost file", sections)
	return m
}

// lookup returns base or, if base is nil, a function that returns an error.
func lookup(base func(string) (*cost.Model, error)) func(string) (*cost.Model, error) {
	return func(s string) (*cost.Model, error) {
		if base == nil {
			return nil, fmt.Errorf("%.40q: no base can be named here", s)
		}
		return base(s)
	}
}

func (d *decoder) costNIC(nic *cost.NIC) entry {
	verb := func(key string, v *cost.Verb) entry {
		entries := []entry{
			set(d, "total", &v.Total, parseOps),
			place(d, "qp", &v.QP, parseOps),
			place(d, "latency", &v.Latency, units.ParseDuration),
		}
		if v == &nic.Atomic {
			entries = append(entries, place(d, "word", &v.Word, parseOps), set(d, "slots", &v.Slots, parseCount))
		}
		return d.section(key, entries...)
	}
	return d.section("nic",
		set(d, "doorbell", &nic.Doorbell, units.ParseDuration),
		set(d, "completion", &nic.Completion, units.ParseDuration),
		d.section("stall", set(d, "share", &nic.Stall.Share, units.ParseProbability), set(d, "mean", &nic.Stall.Mean, units.ParseDuration)),
		verb("send", &nic.Send),
		verb("write", &nic.Write),
		verb("read", &nic.Read),
		verb("atomic", &nic.Atomic),
		d.section("ring",
			set(d, "units", &nic.Ring.Units, parseCount),
			place(d, "entry", &nic.Ring.Entry, units.ParseDuration),
			place(d, "wait", &nic.Ring.Wait, units.ParseDuration),
			place(d, "enable", &nic.Ring.Enable, units.ParseDuration),
		),
	)
}

// place returns an entry for a key whose value is a mapping with one value for host memory and one
// for device memory.
func place[T time.Duration | cost.Rate](d *decoder, key string, dst *cost.Place[T], parse func(string) (T, error)) entry {
	return d.section(key, set(d, "host", &dst.Host, parse), set(d, "device", &dst.Device, parse))
}

// parseCount reads a number in the notation of ParseSize, as an int.
func parseCount(s string) (int, error) {
	n, err := units.ParseSize(s)
	return int(n), err
}

// parseOps reads a number of operations per second; 0 means no limit.
func parseOps(s string) (cost.Rate, error) {
	n, err := units.ParseOps(s)
	return cost.Rate(n), err
}
