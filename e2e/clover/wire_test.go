package clover_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// packet is one packet of a client, as `rdmalab dump` shows it.
type packet struct {
	opcode string
	// length is the length of the IP packet. dma is the number of bytes in the request's RETH; 0:
	// it has none.
	length, dma int
}

// Patterns for parts of a line of dump.
var (
	lineOf = regexp.MustCompile(`^\S+ \[cn0 (?:up|down)\] \S+ > \S+ (RC_\w+) qp=(\S+) psn=(\S+)`)
	dmaOf  = regexp.MustCompile(` rkey=\S+ len=(\d+)`)
	lenOf  = regexp.MustCompile(` len=(\d+) icrc=ok`)
)

const etherLen = 14

// clientPackets returns the packets that cn0 sent, in order, without retransmissions.
func clientPackets(dump string) (list []packet) {
	GinkgoHelper()
	seen := map[string]bool{}
	for line := range strings.Lines(dump) {
		m := lineOf.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if id := fmt.Sprint(m[1:]); seen[id] {
			continue
		} else {
			seen[id] = true
		}
		p := packet{opcode: m[1]}
		if d := dmaOf.FindStringSubmatch(line); d != nil {
			p.dma, _ = strconv.Atoi(d[1])
		}
		n := lenOf.FindStringSubmatch(line)
		Expect(n).NotTo(BeNil(), line)
		p.length, _ = strconv.Atoi(n[1])
		p.length -= etherLen
		list = append(list, p)
	}
	return list
}

var _ = Describe("the packets of operations", Ordered, func() {
	var rack *fixture.Rack
	BeforeAll(func() {
		rack = fixture.Up(fixture.OneSwitch(rackFile))
		rack.OK("clover", "start")
	})

	// record captures the packets of one client that works on one key.
	record := func(workload string, value int) []packet {
		GinkgoHelper()
		file := filepath.Join(GinkgoT().TempDir(), fmt.Sprintf("%s%d.pcapng", workload, value))
		stop := rack.Start("capture", "-w", file)
		Eventually(func() string {
			rack.OK("perf", "write_lat", "--from", "cn1", "--to", "ms0", "--iters", "3")
			return fixture.Run("dump", file).Stdout
		}, fixture.Patience, "200ms").Should(ContainSubstring("RC_WRITE"))
		rack.OK("run", "ycsb", "--clients", "1", "--keys", "1", "--zipf", "0", "--workload", workload, "--value-size", strconv.Itoa(value),
			"--ops", "30", "--warmup", "0s", "--duration", "1m", "-q")
		Expect(stop()).To(fixture.HaveExited(0))
		return clientPackets(fixture.Run("dump", file).Stdout)
	}

	// The lengths are those of the published system (IPv4, one copy): 60 bytes around a node that
	// is written, 48 around one that is read.
	for value, slab := range map[int]int{104: 128, 232: 256, 1000: 1024} {
		It(fmt.Sprintf("is two round trips for a PUT into a node of %d bytes: WRITE, then CMP_SWAP", slab), func() {
			var cycle []string
			for _, p := range record("w", value) {
				switch {
				case p.opcode == "RC_WRITE_ONLY" && p.dma == slab:
					Expect(p.length).To(Equal(60 + slab))
				case p.opcode == "RC_CMP_SWAP":
					Expect(p.length).To(Equal(72))
				case p.opcode == "RC_ATOMIC_ACK":
					Expect(p.length).To(Equal(56))
				case p.opcode == "RC_WRITE_ONLY" && p.dma == 8: // the client does not wait for the WRITE of a shortcut
					Expect(p.length).To(Equal(68))
					continue
				default:
					continue
				}
				cycle = append(cycle, p.opcode)
			}
			puts := strings.Count(strings.Join(cycle, " "), "RC_WRITE_ONLY RC_CMP_SWAP RC_ATOMIC_ACK")
			Expect(puts).To(Equal(30), "%v", cycle)
			// The first WRITE may be that of the key's insertion, which no CMP_SWAP follows.
			Expect(len(cycle)).To(BeNumerically("<=", 3*puts+1), "%v", cycle)
		})

		It(fmt.Sprintf("is one round trip for a GET of a node of %d bytes: READ", slab), func() {
			var cycle []string
			for _, p := range record("c", value) {
				switch {
				case p.opcode == "RC_READ_REQUEST":
					Expect(p.length).To(Equal(60))
				case p.opcode != "RC_READ_RESPONSE_ONLY":
					Expect(p.opcode).NotTo(Equal("RC_CMP_SWAP"))
					continue
				}
				if p.opcode == "RC_READ_REQUEST" && p.dma != slab || p.opcode == "RC_READ_RESPONSE_ONLY" && p.length != 48+slab {
					continue // the client reads the superblocks when it connects, and the shortcut beside the node
				}
				cycle = append(cycle, p.opcode)
			}
			gets := strings.Count(strings.Join(cycle, " "), "RC_READ_REQUEST RC_READ_RESPONSE_ONLY")
			Expect(gets).To(Equal(30), "%v", cycle)
			Expect(cycle).To(HaveLen(2*gets), "%v", cycle)
		})
	}
})
