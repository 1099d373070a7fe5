package statestore

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/swordbox/extmem"
	"github.com/rdmalab/rdmalab/swordbox/hotwords"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
	"github.com/rdmalab/rdmalab/swordbox/telemetry"
)

// Bounds of rules of action measure.
const (
	// MaxSample is the largest value of the key sample. MaxFlows is how many flows the switch
	// remembers for a sketch. MaxSketch is how many counters a sketch has; a report reads all.
	MaxSample, MaxFlows, MaxSketch = 1 << 20, 4096, 1 << 20

	defaultRows, defaultFlows = 5, 256
)

// Keys that only rules with action measure have and, if they are exported, those with action trace of
// package tracestore.
const (
	// KeySample is one in how many packets is taken. KeyChoose says which, and KeySeed is the seed of a
	// choice by chance.
	KeySample = "sample"
	KeyChoose = "choose"
	KeySeed   = "seed"

	keyBy    = "by"
	keyFlows = "flows"
)

// chooses are the values of choose; the first is the default.
var chooses = []string{"nth", "chance"}

// Measure is the action measure. Its rules count the packets that a host sends, of any protocol, in
// the memory of servers.
var Measure = registerMeasure()

func registerMeasure() rules.Action {
	extendCount() // before, because measure has some of its keys
	return rules.Register(rules.Definition{
		Name: "measure", Doc: "counts the packets that a host sends, of any protocol, in a sketch in the memory of servers, all or a sample; see `rdmalab switch heavy`",
		Queues: true, Dials: func(*rules.Rule) bool { return true }, Check: checkMeasure, Together: measureTogether, Memory: memoryOf, Hosts: []string{hotwords.KeyStore},
		Shares: []string{hotwords.KeyStore, KeyAt, keySlots, keyRows, keyAdd, KeyCombine, extmem.KeyCap, extmem.KeyDSCP},
		Keys: []rules.Field{
			rules.Option(keyBy, "source", "with action measure: what is counted: "+strings.Join(telemetry.Names, ", ")+
				" (flow: addresses, protocol, ports; service: protocol and destination port; a packet that is not IP counts by its EtherType); default: flow", extmem.OneOf(telemetry.Names...)),
			rules.Option(KeySample, "16", fmt.Sprintf("with action measure or trace: one packet of this many is counted or recorded, 1 to %d; default: 1", MaxSample), extmem.Between(1, MaxSample)),
			rules.Option(KeyChoose, "chance", "with the key 'sample': which packets are taken: nth, at regular distances, or chance, each with the same probability; default: nth", extmem.OneOf(chooses...)),
			rules.Option(KeySeed, "7", "with choose=chance: seed of the random numbers; default: 0", extmem.Between(0, 1<<30)),
			rules.Option(keyFlows, "256", fmt.Sprintf("with action measure: how many flows the switch remembers, 1 to %d: those that it has counted most often are among them; default: %d", MaxFlows, defaultFlows), extmem.Between(1, MaxFlows)),
		},
	})
}

func checkMeasure(r *rules.Rule) error {
	l := LayoutOf(r)
	switch {
	case !Selects(r):
		return fmt.Errorf("action measure needs the key %s", hotwords.KeyStore)
	case r.Service == "":
		return errors.New("service none: the switch must connect to the server of the key store to learn where its memory is; name its service")
	case r.Mode != rules.Hardened:
		return fmt.Errorf("action measure has no mode %v; leave the mode out", r.Mode)
	case r.From != 0 || r.To != 0 || r.RKey != 0:
		return errors.New("range and rkey select requests; action measure counts all packets of the host")
	case r.Options[keyAdd] == adds[0]:
		return fmt.Errorf("%s=%s: action measure counts packets; use one of packets, bytes", keyAdd, adds[0])
	case l.Width()%2 != 0:
		return fmt.Errorf("%s=%d: with action measure the counters of a row are pairs; use an even number", keySlots, l.Width())
	case l.Cells > MaxSketch:
		return fmt.Errorf("%d %s of %d %s have more than %d counters", l.Rows, keyRows, l.Width(), keySlots, MaxSketch)
	}
	return CheckSample(r)
}

// CheckSample returns what is wrong with the keys sample, choose and seed of a rule.
func CheckSample(r *rules.Rule) error {
	switch {
	case r.Options[KeySample] == "" && r.Options[KeyChoose] != "":
		return fmt.Errorf("%s has no meaning without %s", KeyChoose, KeySample)
	case r.Options[KeySeed] != "" && r.Options[KeyChoose] != chooses[1]:
		return fmt.Errorf("%s has no meaning without %s=%s", KeySeed, KeyChoose, chooses[1])
	}
	return nil
}

// measureTogether returns what is wrong with the rules of action measure of one set. A host has at
// most one, because a rule takes all packets of its host. Rules whose counters are in the same place count in one sketch; they must agree about
// it. Other rules must have other places.
func measureTogether(list []*rules.Rule) error {
	return eachPair(list, func(r, s *rules.Rule, a, b *Layout) error {
		if oneSketch(r, s, a, b) {
			return nil
		}
		return fmt.Errorf("%w, or make %s, %s, %s, %s, %s, %s and %s the same in both, so that both count in one sketch", overlap(r, s, a, b), KeyAt, keySlots, keyRows, keyAdd, keyBy, KeySample, keyFlows)
	})
}

// oneSketch reports whether two rules, whose layouts are a and b, count in one sketch.
func oneSketch(r, s *rules.Rule, a, b *Layout) bool {
	return a.Same(&b.Area) && a.Rows == b.Rows && a.Bytes == b.Bytes && ByOf(r) == ByOf(s) && EveryOf(r) == EveryOf(s) && flowsOf(r) == flowsOf(s)
}

// ByOf returns what a valid rule of action measure counts. EveryOf returns how many packets there
// are for each one that a rule of action measure or trace takes, and SamplerOf which it takes.
func ByOf(r *rules.Rule) telemetry.By {
	return telemetry.By(max(0, slices.Index(telemetry.Names, r.Options[keyBy])))
}

func EveryOf(r *rules.Rule) uint64 { return uint64(extmem.Number(r.Options[KeySample], 1)) }

func flowsOf(r *rules.Rule) int { return extmem.Number(r.Options[keyFlows], defaultFlows) }

func SamplerOf(r *rules.Rule) telemetry.Sampler {
	return telemetry.NewSampler(EveryOf(r), r.Options[KeyChoose] == chooses[1], uint64(extmem.Number(r.Options[KeySeed], 0)))
}

// Sketch returns the form of the counters of a rule.
func (l *Layout) Sketch() telemetry.Sketch { return telemetry.Sketch{Rows: l.Rows, Width: l.Width()} }

// firstShard returns the number of the first connection to a server for a rule of an action.
func firstShard(r *rules.Rule) int {
	if r.Action == hotwords.Count {
		return switchconn.CountShard
	}
	return switchconn.MeasureShard
}
