package exercise

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/capture/flows"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/topo/switchd"
)

// switchProgram is about a program of the switch that the learner writes.
var switchProgram = Exercise{Name: "switch-program", Own: true, check: checkProgram}

// programReads is how many READs the check posts; dropEvery is the READ that the program must drop.
const (
	programReads = 350
	dropEvery    = 100
)

func checkProgram(ctx context.Context, l *Lab, r *Report) error {
	var info switchd.ProgramInfo
	if err := l.ask(ctx, rackfile.SwitchName, http.MethodGet, "/program", nil, &info); err != nil {
		return err
	}
	own := !slices.Contains([]string{"forward", "swordbox"}, info.Name)
	r.add(own, "the switch runs your program "+info.Name,
		fmt.Sprintf("the switch runs %s, which is no program of yours; load yours by `switch program NAME` of your own binary", info.Name))
	if !own {
		return nil
	}
	before := l.counters(ctx)
	capture, err := l.capture(ctx)
	if err != nil {
		return err
	}
	_, runErr := l.run(ctx, perf.Config{Test: "read_lat", To: l.Server, Iters: programReads})
	packets, err := capture.end()
	if err != nil {
		return err
	}
	seen, err := requestsIn(packets)
	if err != nil {
		return err
	}
	r.add(runErr == nil, fmt.Sprintf("%d READs succeed", programReads), fmt.Sprintf("the READs do not succeed: %v", runErr))
	seen.judge(r)
	seen.judgeCounters(r, before, l.counters(ctx))
	return nil
}

// counters returns the counters of the switch's program by name; nil if it counts nothing.
func (l *Lab) counters(ctx context.Context) map[string]uint64 {
	var groups []handler.Group
	if err := l.ask(ctx, rackfile.SwitchName, http.MethodGet, "/program/counters", nil, &groups); err != nil {
		return nil
	}
	out := make(map[string]uint64)
	for _, g := range groups {
		for _, c := range g.Counters {
			out[c.Name] = c.Value
		}
	}
	return out
}

// requests is what a capture shows of the client's requests on their way to the switch.
type requests struct {
	reads   int
	dropped []int             // numbers of the READs that the switch has dropped, from 1
	others  int               // other packets that the switch has dropped
	byKey   map[uint32]uint64 // requests that name an R_Key
	key     uint32            // of the READs
}

func requestsIn(packets []byte) (*requests, error) {
	q := &requests{byKey: make(map[uint32]uint64)}
	return q, recordsOf(packets, q.add)
}

func (q *requests) add(rec *dump.Record) error {
	if _, dir := flows.Side(rec.Name); dir != flows.Up || rec.Verdict == dump.Other || rec.Verdict == dump.Malformed {
		return nil
	}
	op := rec.Frame.BTH.Opcode
	switch {
	case op.Has(wire.HasRETH):
		q.byKey[rec.Frame.RETH.RKey]++
	case op.Has(wire.HasAtomicETH):
		q.byKey[rec.Frame.AtomicETH.RKey]++
	}
	dropped := slices.ContainsFunc(rec.Comments, func(c string) bool { return strings.Contains(c, "dropped by the switch") })
	if op == wire.RCReadRequest {
		q.reads++
		q.key = rec.Frame.RETH.RKey
		if dropped {
			q.dropped = append(q.dropped, q.reads)
		}
	} else if dropped {
		q.others++
	}
	return nil
}

// judge adds whether every hundredth READ was dropped, and nothing else.
func (q *requests) judge(r *Report) {
	right := len(q.dropped) > 0 && q.dropped[0] <= dropEvery && q.reads-q.dropped[len(q.dropped)-1] < dropEvery
	for i := range q.dropped {
		right = right && (i == 0 || q.dropped[i]-q.dropped[i-1] == dropEvery)
	}
	r.add(right, fmt.Sprintf("of %d READ requests, every %dth was dropped", q.reads, dropEvery),
		fmt.Sprintf("of %d READ requests (those that were sent again count), these were dropped: %v; every %dth is wanted", q.reads, some(q.dropped), dropEvery))
	r.add(q.others == 0, "no other packet was dropped", fmt.Sprintf("%d other packets were dropped by the switch", q.others))
}

// some returns at most the first ten numbers.
func some(n []int) string {
	const most = 10
	if len(n) == 0 {
		return "none"
	}
	text := strings.Trim(fmt.Sprint(n[:min(len(n), most)]), "[]")
	if len(n) > most {
		text += " …"
	}
	return text
}

// hexadecimals finds the hexadecimal numbers in the name of a counter.
var hexadecimals = regexp.MustCompile(`(?i)0x([0-9a-f]+)`)

// names reports whether a counter is named after an R_Key: its name has the key as a hexadecimal number,
// with leading zeros or without.
func names(counter string, key uint32) bool {
	return slices.ContainsFunc(hexadecimals.FindAllStringSubmatch(counter, -1), func(m []string) bool {
		n, err := strconv.ParseUint(m[1], 16, 64)
		return err == nil && n == uint64(key)
	})
}

// judgeCounters adds whether a counter whose name has the R_Key of the READs has grown by the number of
// requests that name this key. Of several such counters, one must be right.
func (q *requests) judgeCounters(r *Report, before, after map[string]uint64) {
	wrong := fmt.Sprintf("no counter of the program is named after the R_Key of the READs, %#x; let the program have a method Counters", q.key)
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if !names(name, q.key) {
			continue
		}
		grown := after[name] - before[name]
		if grown == q.byKey[q.key] {
			r.add(true, fmt.Sprintf("counter %s has grown by %d, the requests with this R_Key", name, grown), "")
			return
		}
		wrong = fmt.Sprintf("counter %s has grown by %d; the client sent %d requests with this R_Key", name, grown, q.byKey[q.key])
	}
	r.add(false, "", wrong)
}
