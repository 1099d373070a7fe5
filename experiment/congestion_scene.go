package experiment

import (
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/congestion"
	"github.com/rdmalab/rdmalab/softrnic/selective"
)

// Scene is a load of flows between the hosts of a rack whose switch has one priority for data: lossless,
// with pause frames, or lossy. A flow is a connection that WRITEs.
//
// A rack in slow motion runs flows without messages, with everything but Flows, Span and Seed from its rack file.
// Span 0 means 40 s of real time there.
type Scene struct {
	Hosts int
	// Fabric, if it has leaves: host i is at leaf i modulo Leaves, and each leaf has a trunk to each spine. Without leaves
	// all hosts are at one switch.
	Fabric SceneFabric
	// Params are those of all NICs; algorithm none means that there is no congestion control. Their
	// MaxRate is the rate of all links, Delay the delay of a link.
	Params congestion.Params
	Delay  time.Duration
	// Lossless: a host is paused when its frames have XOFF bytes of the switch's memory. Otherwise a
	// queue has at most Limit bytes.
	Lossless    bool
	XOFF, Limit int
	Marks       SceneMarks
	// Recovery and Window are those of all queue pairs.
	Recovery selective.Kind
	Window   int
	// Loss is the probability that a packet to host 0 is lost on its link.
	Loss float64
	// Share, unless "", is a value of a rule's key slow: the switch moves all requests to host 0 to one shared
	// connection, whose clients slow down as the value says. WRITEs then have at most a packet.
	Share string
	// Shards is how many shared connections there are; 0: 1.
	Shards int
	Flows  []SceneFlow
	// Timeout is the code of the ACK timeout of all queue pairs; 0: 1 ms.
	Timeout uint8
	// Depth is how many WRITEs of a flow are in flight; 0: 16.
	Depth int
	// Span is how long flows without messages send; its second half is measured. Messages are sent at
	// their times.
	Span time.Duration
	Seed uint64
	// Restless: the sum of the rates need not be steady, because the figure shows that control fails.
	Restless bool
}

// SceneFabric is how many leaves and spines there are.
type SceneFabric struct{ Leaves, Spines int }

// SceneMarks says when packets are marked: KMin and KMax in bytes, PMax from 0 to 1; KMax 0: never.
type SceneMarks struct {
	KMin, KMax int
	PMax       float64
}

var paperMarks = SceneMarks{paperKMin, paperKMax, paperPMax}

// SceneFlow is a flow between two hosts, by their numbers. Without messages it sends all the time; if it is Atomic, one
// message at a time in the measured half, each of which is timed.
type SceneFlow struct {
	From, To int
	Messages []SceneMessage
	// Atomic: the messages are CMP_SWAPs of 8 bytes. Read: they are READs. Apart: all packets of the host From have a priority of their
	// own, which leaves before the others.
	Atomic, Read, Apart bool
	// Lock: the flow takes a lock by CMP_SWAP, the same for all such flows to a host, WRITEs Each bytes while it has
	// it, gives it back, and begins again after Pause. The result has the times from the first CMP_SWAP until it has the lock.
	Lock  bool
	Pause time.Duration
	// Exempt: the NIC of the host From ignores congestion notifications.
	Exempt bool
	// Each is the length of the WRITEs of a flow without messages; 0: 64 KiB.
	Each int
}

// SharedDepth is how many requests are in flight on the shared connection of a Scene.
const SharedDepth = 128

// ShareKeys returns the keys, beside server and action, of the rule that Share and Shards stand for, as the text of a rule.
func (s *Scene) ShareKeys() string {
	return fmt.Sprintf("depth=%d shards=%d slow=%s", SharedDepth, max(1, s.Shards), s.Share)
}

// SceneMessage is a message of a flow: when it is posted, and its length.
type SceneMessage struct {
	At    time.Duration
	Bytes int
}

// SceneResult has what a Scene has shown.
type SceneResult struct {
	// Shares is, for each flow, its share of what a link can carry. Unsteady is by how much, as a share,
	// the sums of the two quarters of the measured time differ.
	Shares   []float64
	Carried  float64 // on a rack and its twin: what left the ports of the receivers
	Unsteady float64
	// Messages of Posted were completed. Mean is how long one took on average; Slowdown and P99 are that
	// time divided by the time that the message takes alone, on average and the 99th percentile.
	Messages, Posted int
	Mean             time.Duration
	Slowdown, P99    float64
	// Tail is the 99th percentile of the times of messages, or of the waits for locks, and Mean then the mean wait.
	Tail time.Duration
	// Pauses is how many pause frames the switch sent, in the measured time if flows have no messages.
	// Dropped packets found no room in the switch, Again were sent again.
	Pauses, Dropped, Again uint64
	// Peak is the longest queue in bytes, Queue the 90th percentile of the queue to host 0 in the measured time.
	Peak, Queue int64
	// Told is how many CNPs the server has sent for shared connections, Passed how many the switch has passed on
	// to clients.
	Told, Passed uint64
	// Twin is, on a rack, what the same flows have shown in the simulator with the rack's file; nil in the simulator.
	Twin *SceneResult
}
