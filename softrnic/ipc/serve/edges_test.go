package serve

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// An event reaches a program that reads at once, and one that waits goes before those behind it.
func TestOrderOfEvents(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[1])
	q := eventQueue{sock: fds[0]}
	defer q.close()
	b := make([]byte, 4)
	read := func() int {
		if n, err := unix.Read(fds[1], b); n != 1 || err != nil {
			return -1
		}
		return int(b[0])
	}
	for i := range 3 {
		if q.send([]byte{byte(i)}); len(q.pending) != 0 || read() != i {
			t.Fatalf("event %d does not arrive at once; %d wait", i, len(q.pending))
		}
	}
	sent := 0
	for ; len(q.pending) < 1; sent++ {
		q.send([]byte{byte(sent)})
	}
	for got := range 3 * sent { // the program reads one event for each further one
		if x := read(); x != int(byte(got)) {
			t.Fatalf("event %d is %d", got, x)
		}
		if !q.send([]byte{byte(sent)}) {
			t.Errorf("event %d is lost", sent)
		}
		sent++
	}
}

// An event for a program that has closed its side is lost, and is not counted as sent. One that reads late still
// gets many events from the socket, without a command that would send what waits.
func TestEventsOfASideThatIsClosed(t *testing.T) {
	var q eventQueue
	fd, err := q.open()
	if err != nil {
		t.Fatal(err)
	}
	defer q.close()
	if q.widen(); os.Geteuid() == 0 {
		for i := range 1000 {
			if !q.send(make([]byte, asyncLen)) || len(q.pending) > 0 {
				t.Fatalf("event %d does not arrive at once", i)
			}
		}
	}
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
	if q.send(make([]byte, asyncLen)) || len(q.pending) > 0 {
		t.Error("an event is sent to a program that has closed its side")
	}
}

// isAbandoned reports whether the program has closed its side of a queue.
func isAbandoned(q *eventQueue) bool { return len(abandoned(map[uint32]*eventQueue{7: q})) == 1 }

// The side of a program that is open is not gone, whether it reads or not; without a descriptor there is none.
func TestEndOfAnEventQueue(t *testing.T) {
	var q eventQueue
	if q.sock != 0 {
		t.Errorf("descriptor %d", q.sock)
	}
	fd, err := q.open()
	if err != nil {
		t.Fatal(err)
	}
	if q.sock == 0 || isAbandoned(&q) {
		t.Errorf("descriptor %d, gone %v", q.sock, isAbandoned(&q))
	}
	if q.send([]byte{1}); isAbandoned(&q) {
		t.Error("it is gone with an event in it")
	}
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
	if q.send([]byte{1}); !isAbandoned(&q) || len(q.pending) != 0 {
		t.Errorf("gone %v, %d wait", isAbandoned(&q), len(q.pending))
	}
	for range 2 {
		if q.close(); q.sock != 0 {
			t.Errorf("descriptor %d after the end", q.sock)
		}
	}
}

// A program that has ended leaves its places in a group, and the others keep theirs.
func TestGroupOfTwoPrograms(t *testing.T) {
	s := groupShares{most: 16}
	group := verbs.GID{15: 1}
	var one, two client
	for _, c := range []*client{&one, &two, &two} {
		if err := s.take("attach", c, group); err != nil {
			t.Fatal(err)
		}
	}
	if s.forget(&one); s.used[group][&two] != 2 || len(s.used[group]) != 1 {
		t.Errorf("%v", s.used)
	}
	s.giveBack(&two, group)
	if s.used[group][&two] != 1 {
		t.Errorf("%v", s.used)
	}
	if s.giveBack(&two, group); len(s.used) != 0 {
		t.Errorf("%v", s.used)
	}
	small := groupShares{most: 1} // one place for programs, and none left to the daemon
	if small.take("attach", &one, group) != nil || small.take("attach", &two, group) == nil {
		t.Errorf("%v of one place", small.used)
	}
}

// Each kind of objects has its table of the NIC, and those that the NIC does not know have none.
func TestTablesOfKinds(t *testing.T) {
	want := map[kind]table{
		kindPD: tablePD, kindMR: tableRegion, kindMW: tableRegion, kindAH: tableAH, kindCQ: tableCQ, kindSRQ: tableSRQ, kindXRCD: tableXRCD, kindQP: tableQP,
		kindAttachment: tableAttachment, kindID: tableID, kindDevice: tableDevice, kindChannel: tableFile,
	}
	for k := range kinds {
		x, ok := want[k]
		if !ok {
			x = noTable
		}
		if got := quotas[k].table; got != x {
			t.Errorf("%s: table %d, want %d", quotas[k].name, got, x)
		}
	}
}

// What a program asks for is charged with the memory that the NIC needs for it; absurd numbers are bounded
// before they are multiplied.
func TestMemoryOfQueues(t *testing.T) {
	for _, c := range []struct{ got, want int64 }{
		{cqBytes(0), 0},
		{cqBytes(-5), 0},
		{cqBytes(10), 560},
		{cqBytes(1 << 30), 56 << 30},
		{srqBytes(0, 4), 0},
		{srqBytes(10, 0), 1280},
		{srqBytes(10, 4), 1920},
		{srqBytes(-1, -1), 0},
		{bounded(-1), 0},
		{bounded(7), 7},
		{bounded(1 << 40), 1 << 20},
	} {
		if c.got != c.want {
			t.Errorf("%d bytes, want %d", c.got, c.want)
		}
	}
}
