package sherman_test

import (
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// forest is a rack with two memory servers and a switch that runs program swordbox.
const forest = `
switch: {program: swordbox}
hosts:
  - {name: "cn[0-2]", role: compute}
  - {name: "ms[0-1]", role: memory, memory: 32MiB}
`

// lease is the lease of the locks: long enough for a busy machine, short enough to wait for it.
const lease = time.Second

// verdict is the part of `sherman check -o json` that the specs use.
type verdict struct {
	History *struct {
		Operations   int    `json:"operations"`
		Unknown      int    `json:"unknown"`
		Linearizable bool   `json:"linearizable"`
		Why          string `json:"why"`
	} `json:"history"`
	Tree struct {
		Content     struct{ Keys int }
		Levels      []int `json:"levels"`
		HalfSplits  int   `json:"halfSplits"`
		Unreachable int   `json:"unreachable"`
		Dead        int   `json:"dead"`
	} `json:"tree"`
	Why string `json:"why"`
}

// stat is the part of `sherman stat -o json` that the specs use.
type stat struct {
	Lease float64    `json:"leaseMs"`
	Locks []lockStat `json:"locks"`
	Node  struct {
		Recovered uint64 `json:"recovered"`
		Splits    uint64 `json:"splits"`
		HandOvers uint64 `json:"handOvers"`
	} `json:"node"`
}

// lockStat is a lock that is held.
type lockStat struct {
	Server      string  `json:"server"`
	Index       int     `json:"index"`
	Owner       uint32  `json:"owner"`
	Acquisition uint32  `json:"acquisition"`
	Host        string  `json:"host"`
	Alive       bool    `json:"alive"`
	Left        float64 `json:"leaseLeftMs"`
}

// plant starts a tree with small pages, so that they split often.
func plant(rack *fixture.Rack, flags ...string) {
	GinkgoHelper()
	rack.OK(append([]string{"sherman", "start", "--lease", lease.String()}, flags...)...)
}

// whole checks the structure. wrecks is how many pages interrupted splits may have left.
func whole(rack *fixture.Rack, wrecks int) verdict {
	GinkgoHelper()
	var v verdict
	rack.JSON(&v, "sherman", "check", "--unreachable", strconv.Itoa(wrecks), "--dead-locks", strconv.Itoa(wrecks))
	Expect(v.Why).To(BeEmpty())
	return v
}

// history starts clients that record a history on a host. The channel receives the result of the
// command.
func history(rack *fixture.Rack, from string, clients, rounds, keys int, base string) <-chan fixture.Result {
	ended := make(chan fixture.Result, 1)
	go func() {
		defer GinkgoRecover()
		ended <- rack.Run("sherman", "check", "--from", from, "--clients", strconv.Itoa(clients), "--rounds", strconv.Itoa(rounds),
			"--keys", strconv.Itoa(keys), "--base", base, "--unreachable", "-1", "--dead-locks", "-1")
	}()
	return ended
}

// right waits for the result of a history, which must be linearizable.
func right(ended <-chan fixture.Result) {
	GinkgoHelper()
	var res fixture.Result
	Eventually(ended, "3m").Should(Receive(&res))
	Expect(res).To(fixture.HaveExited(0))
	Expect(res.Stdout).To(ContainSubstring("linearizable: one order"))
}

// busy returns what waits until clients of a host are at work that are started after it: even if
// they have ended when it is called.
func busy(rack *fixture.Rack, host string) (wait func()) {
	GinkgoHelper()
	sent := func() uint64 { return rack.Counters(host)["sent_pkts"] }
	before := sent()
	return func() {
		GinkgoHelper()
		Eventually(sent, fixture.Patience, "20ms").Should(BeNumerically(">", before+100))
	}
}
