package endure

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// usage is what a daemon holds. Resident is its memory, and Heap the part of it that is in use, in KiB.
type usage struct {
	Name                                    string
	Resident, Heap, Descriptors, Goroutines int
	Programs                                int
	Objects                                 map[string]int
}

// usages reads what the daemons of all nodes hold.
func usages(rack *fixture.Rack) (list []usage) {
	GinkgoHelper()
	type node struct {
		Name   string `json:"name"`
		PID    int    `json:"pid"`
		Daemon struct {
			Process struct {
				Goroutines int `json:"goroutines"`
				LiveHeap   int `json:"liveHeapBytes"`
			} `json:"process"`
			Objects  map[string]int `json:"objects"`
			Programs []any          `json:"programs"`
		} `json:"daemon"`
	}
	var s struct {
		Switch node   `json:"switch"`
		Hosts  []node `json:"hosts"`
	}
	Expect(json.Unmarshal([]byte(rack.OK("status", "-o", "json")), &s)).To(Succeed())
	for _, n := range append(s.Hosts, s.Switch) {
		Expect(n.PID).NotTo(BeZero(), "%s has no daemon", n.Name)
		Expect(n.Daemon.Process.Goroutines).NotTo(BeZero())
		files, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(n.PID), "fd"))
		Expect(err).NotTo(HaveOccurred())
		list = append(list, usage{
			n.Name, resident(n.PID), n.Daemon.Process.LiveHeap >> 10, len(files), n.Daemon.Process.Goroutines,
			len(n.Daemon.Programs), n.Daemon.Objects,
		})
	}
	return list
}

// resident returns the resident memory of a process in KiB.
func resident(pid int) int {
	GinkgoHelper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	Expect(err).NotTo(HaveOccurred())
	_, rest, found := strings.Cut(string(text), "VmRSS:")
	Expect(found).To(BeTrue())
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	Expect(err).NotTo(HaveOccurred())
	return kib
}

// more describes what a node holds beyond what it held before; "": nothing. The live heap may grow
// by a quarter and 16 MiB, because its pools grow with the largest load so far, and the resident memory
// by half and 64 MiB, because the collector lets garbage stand.
func more(before, now usage) string {
	var out []string
	if looksAtHeap && now.Heap > before.Heap*5/4+16<<10 {
		out = append(out, fmt.Sprintf("live heap %d KiB, before %d", now.Heap, before.Heap))
	}
	if now.Resident > before.Resident*3/2+64<<10 {
		out = append(out, fmt.Sprintf("memory %d KiB, before %d", now.Resident, before.Resident))
	}
	if now.Descriptors > before.Descriptors {
		out = append(out, fmt.Sprintf("%d descriptors, before %d", now.Descriptors, before.Descriptors))
	}
	if now.Goroutines > before.Goroutines {
		out = append(out, fmt.Sprintf("%d goroutines, before %d", now.Goroutines, before.Goroutines))
	}
	if now.Programs > 0 {
		out = append(out, fmt.Sprintf("%d programs", now.Programs))
	}
	for name, n := range now.Objects {
		if name == "bytes" {
			continue // the sum of the sizes of regions
		}
		if n > before.Objects[name] {
			out = append(out, fmt.Sprintf("%d %s, before %d", n, name, before.Objects[name]))
		}
	}
	if len(out) == 0 {
		return ""
	}
	return now.Name + ": " + strings.Join(out, ", ")
}

// settled reads what the daemons hold when that has not become less for longer than a memory service
// keeps the connections of programs that were killed.
func settled(rack *fixture.Rack) (list []usage) {
	GinkgoHelper()
	const quiet = 12 * time.Second
	since := time.Now()
	for end := since.Add(settles); time.Since(since) < quiet && time.Now().Before(end); time.Sleep(time.Second) {
		rack.OK("perf", "verify", "--from", "cn0", "--to", "ms0") // a request makes the service end what is dead
		now := usages(rack)
		for i := range list {
			if more(now[i], list[i]) != "" || list[i].Programs > 0 {
				since = time.Now()
			}
		}
		list = now
	}
	return list
}
