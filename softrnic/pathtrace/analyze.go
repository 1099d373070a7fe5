package pathtrace

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Stage has the times of one part of an operation, or of the whole operation.
type Stage struct {
	Name   string        `json:"name"`
	Median time.Duration `json:"medianNs"`
	P99    time.Duration `json:"p99Ns"`
}

// Breakdown says how the time of operations is divided into stages. The stages follow each other
// without gaps. So the means of the stages add up to the mean of the total, but their medians need
// not.
type Breakdown struct {
	// Operations is the number of posts that the client recorded. Followed is how many of these
	// operations passed every point once, in order; in the others a packet was retransmitted, or
	// packets of other operations were in between.
	Operations int `json:"operations"`
	Followed   int `json:"followed"`
	// Missed counts the events for which the ring of a process had no room. Operations after the
	// first missed event do not count.
	Missed uint64  `json:"missed"`
	Stages []Stage `json:"stages"`
	Total  Stage   `json:"total"`
	// Calls are the durations of the calls that send packets. They overlap with the stages.
	Calls []Stage `json:"sendCalls"`
}

// node is a process on the path.
type node uint8

const (
	client node = iota
	middle      // the switch
	server
)

// step is one point that each operation passes: the process, the point in it, and for the switch
// its port.
type step struct {
	node  node
	point Point
	// toServer is true if the event is at the switch's port to the server, false if it is at the
	// port to the client. It is used only for the switch.
	toServer bool
	// stage is the name of the time between the previous step and this one.
	stage string
}

// path has the points that an operation passes, from its post to the next post.
var path = []step{
	{client, Posted, false, ""},
	{client, Sending, false, "{client}: post, doorbell, engine"},
	{middle, Received, false, "{client} to switch: send call, link, wake-up"},
	{middle, Sending, true, "switch: request"},
	{server, Received, false, "switch to {server}: send call, link, wake-up"},
	{server, Sending, false, "{server}: engine, memory, response"},
	{middle, Received, true, "{server} to switch: send call, link, wake-up"},
	{middle, Sending, false, "switch: response"},
	{client, Received, false, "switch to {client}: send call, link, wake-up"},
	{client, Handled, false, "{client}: engine"},
	{client, Posted, false, "{client}: completion, poll, application"},
}

// located is an event with the process that recorded it.
type located struct {
	Event
	node node
}

// ErrNoOperation is returned for a trace in which no operation passed all points in order.
var ErrNoOperation = errors.New("no operation could be followed: only latency tests with messages of one packet can, on a path without other traffic")

// Analyze follows the operations of a client with a server through a switch. `from` and `to` are
// the names of client and server, and of the switch's ports to them; c, sw and s are the traces of
// client, switch and server.
func Analyze(from, to string, c, sw, s Trace) (*Breakdown, error) {
	f := follower{from: slices.Index(sw.Ports, from), to: slices.Index(sw.Ports, to), at: make([]int64, len(path)), stages: make([][]time.Duration, len(path)-1)}
	if f.from < 0 || f.to < 0 {
		return nil, fmt.Errorf("the switch has no port of %s and %s", from, to)
	}
	var all []located
	end, missed := int64(math.MaxInt64), uint64(0) // end is when the first ring was full
	for n, t := range []Trace{client: c, middle: sw, server: s} {
		for _, e := range t.Events {
			all = append(all, located{e, node(n)})
		}
		if missed += t.Missed; t.Missed > 0 && len(t.Events) > 0 {
			end = min(end, t.Events[len(t.Events)-1].At)
		}
	}
	slices.SortStableFunc(all, func(a, b located) int { return cmp.Compare(a.At, b.At) })
	for _, e := range all {
		if e.At > end {
			break
		}
		f.event(e)
	}
	if len(f.total) == 0 {
		return nil, ErrNoOperation
	}
	b := &Breakdown{Missed: missed, Operations: f.posts, Followed: len(f.total), Total: stage("total", f.total)}
	names := strings.NewReplacer("{client}", from, "{server}", to)
	for i, d := range f.stages {
		b.Stages = append(b.Stages, stage(names.Replace(path[i+1].stage), d))
	}
	for n, name := range []string{client: from, middle: "switch", server: to} {
		b.Calls = append(b.Calls, stage(name, f.calls[n]))
	}
	return b, nil
}

// follower follows one operation after the other.
type follower struct {
	from, to int     // indexes of the switch's ports to client and server
	posts    int     // see Breakdown.Operations
	next     int     // index in path of the next point of the current operation; 0 means that no operation is being followed
	at       []int64 // when the current operation passed the points of path before index next
	stages   [][]time.Duration
	total    []time.Duration
	began    [3]int64 // when the last send call of each process began
	calls    [3][]time.Duration
}

func (f *follower) event(e located) {
	if e.node == middle && e.Port != f.from && e.Port != f.to {
		return // an event at a port to another host
	}
	switch {
	case e.Point == Sending:
		f.began[e.node] = e.At
	case e.Point == Sent:
		if f.began[e.node] != 0 {
			f.calls[e.node] = append(f.calls[e.node], time.Duration(e.At-f.began[e.node]))
		}
		return
	case e.Point == Handled && e.node == server:
		return // no step of path is at this point of the server
	}
	posted := e.node == client && e.Point == Posted
	if posted {
		f.posts++
	}
	if f.next > 0 && f.is(e, path[f.next]) {
		f.at[f.next] = e.At
		if f.next++; f.next == len(path) {
			f.finish()
			f.next = 0
		}
	} else {
		f.next = 0
	}
	if posted {
		f.at[0], f.next = e.At, 1
	}
}

// is reports whether e is an event of step s.
func (f *follower) is(e located, s step) bool {
	port := f.from
	if s.toServer {
		port = f.to
	}
	return e.node == s.node && e.Point == s.point && (s.node != middle || e.Port == port)
}

// finish counts an operation that has passed all points.
func (f *follower) finish() {
	for i := range f.stages {
		f.stages[i] = append(f.stages[i], time.Duration(f.at[i+1]-f.at[i]))
	}
	f.total = append(f.total, time.Duration(f.at[len(path)-1]-f.at[0]))
}

// stage computes median and 99th percentile of a stage.
func stage(name string, d []time.Duration) Stage {
	if len(d) == 0 {
		return Stage{Name: name}
	}
	slices.Sort(d)
	return Stage{Name: name, Median: d[len(d)/2], P99: d[len(d)*99/100]}
}
