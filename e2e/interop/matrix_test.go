package interop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
	"github.com/rdmalab/rdmalab/e2e/interop/ask"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/capture/pcapng"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// operations of the matrix.
var operations = []string{"send", "send_imm", "write", "write_imm", "read", "cas", "faa"}

var mtus = []int{256, 512, 1024, 2048, 4096}

// sizesOf are the sizes of a cell's messages: 0, less than a word, around a packet, several
// packets, many.
func sizesOf(op string, mtu int) []int {
	if op == "cas" || op == "faa" {
		return []int{8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8}
	}
	return []int{0, 1, 3, mtu - 1, mtu, mtu + 1, 4*mtu + 5, 64 << 10}
}

// cells returns all operations at these path MTUs, in both directions.
func cells(link string, mtus []int, gid, ourGID int) []cell {
	var out []cell
	for _, mtu := range mtus {
		for _, op := range operations {
			for _, ours := range []bool{true, false} {
				out = append(out, cell{Op: op, Type: "rc", Link: link, MTU: mtu, Ours: ours, GID: gid, OurGID: ourGID, Sizes: sizesOf(op, mtu), Depth: 8, Pieces: 1})
			}
		}
	}
	return out
}

// unreliable returns the operations of the unreliable services, in both directions. No packet may
// be lost on a clean link, so only one message is in flight.
func unreliable(gid, ourGID int) []cell {
	var out []cell
	add := func(typ, op string, mtu int, sizes ...int) {
		for _, ours := range []bool{true, false} {
			out = append(out, cell{Op: op, Type: typ, Link: typ, MTU: mtu, Ours: ours, GID: gid, OurGID: ourGID, Sizes: sizes, Depth: 1, Pieces: 1})
		}
	}
	for _, mtu := range []int{256, 1024, 4096} {
		for _, op := range []string{"send", "send_imm", "write", "write_imm"} {
			add("uc", op, mtu, 0, 1, 3, mtu-1, mtu, mtu+1, 3*mtu+5)
		}
	}
	for _, op := range []string{"send", "send_imm"} {
		add("ud", op, 4096, 0, 1, 3, 255, 256, 1023, 1025, 4095, 4096)
	}
	return out
}

// variations returns cells that differ from the rest of the matrix in one parameter, in both
// directions.
func variations() []cell {
	var out []cell
	add := func(what string, change func(*cell), ops ...string) {
		for _, op := range ops {
			for _, ours := range []bool{true, false} {
				c := cell{Op: op, Type: "rc", Link: "varied", MTU: 1024, Ours: ours, GID: 1, Sizes: sizesOf(op, 1024), Depth: 8, Pieces: 1, What: what}
				change(&c)
				out = append(out, c)
			}
		}
	}
	data := []string{"send", "send_imm", "write", "write_imm", "read"}
	answered := []string{"read", "cas", "faa"}
	many := func(c *cell) {
		c.Sizes = nil
		for i := range 48 {
			c.Sizes = append(c.Sizes, map[bool]int{true: 8, false: 100 * i}[c.atomic()])
		}
	}
	add("3 pieces of memory", func(c *cell) { c.Pieces = 3 }, data...)
	add("4 pieces of memory, MTU 256", func(c *cell) { c.Pieces, c.MTU, c.Sizes = 4, 256, []int{0, 3, 255, 257, 1021, 8191} }, data...)
	add("one message at a time", func(c *cell) { c.Depth = 1 }, operations...)
	add("48 messages, 32 outstanding", func(c *cell) { many(c); c.Depth = 32 }, operations...)
	add("one READ or atomic outstanding", func(c *cell) { many(c); c.Depth, c.RdAtomic = 32, 1 }, answered...)
	add("16 READs or atomics outstanding", func(c *cell) { many(c); c.Depth, c.RdAtomic = 32, 16 }, answered...)
	add("IPv6", func(c *cell) { c.GID, c.OurGID = 2, 1 }, operations...)
	return out
}

// cellsLimit bounds the cells of one spec, which take a minute at most.
const cellsLimit = 8 * time.Minute

// runCells runs cells on a NIC in cn0, several of them at the same time.
func runCells(list []cell, workers int) []result {
	GinkgoHelper()
	p := plan{
		Ifname: rackfile.HostIfname, Addrs: ourAddrs, Peers: guestGIDs, PeerMAC: guestMAC,
		Network: "unix", Guest: filepath.Join(linux.dir, "verbs"), Cells: list, Workers: workers, Seed: uint64(GinkgoRandomSeed()),
	}
	if fixture.Through() == fixture.Move {
		p.Adopt = newAdoption()
		p.Workers = 1 // one shared connection a server
	}
	in, err := json.Marshal(p)
	Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithTimeout(context.Background(), cellsLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, fixture.Binary(), peerArgs(rack, "cn0", "station")...)
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &stdout, &stderr
	Expect(cmd.Run()).To(Succeed(), "%s%s", &stdout, &stderr)
	var out []result
	for dec := json.NewDecoder(&stdout); ; {
		var r result
		if err := dec.Decode(&r); errors.Is(err, io.EOF) {
			break
		} else {
			Expect(err).NotTo(HaveOccurred())
		}
		GinkgoWriter.Printf("%v  %6d ms  %s\n", &r.Cell, r.Elapsed.Milliseconds(), r.Wrong)
		out = append(out, r)
	}
	Expect(out).To(HaveLen(len(list)), stderr.String())
	return out
}

// beRight runs cells, one at a time, and expects that the guest's NIC behaves as each cell says.
func beRight(list []cell) (naks map[string]int) {
	GinkgoHelper()
	return beRightTogether(list, 1)
}

// beRightTogether runs cells with so many workers through a switch that moves some of their requests
// if it has such rules, and checks them as checkCells does.
func beRightTogether(list []cell, workers int) (naks map[string]int) {
	GinkgoHelper()
	return checkCells(list, func() (found []result) {
		moves(list, func() { found = runCells(list, workers) })
		return found
	})
}

// checkCells runs cells by run, checks each of their packets on the guest's link, and expects that
// the NICs behave as each cell says. It returns the NAKs on the wire, as SOURCE SYNDROME.
func checkCells(list []cell, run func() []result) (naks map[string]int) {
	GinkgoHelper()
	file := filepath.Join(GinkgoT().TempDir(), "capture.pcapng")
	stop := rack.Start("capture", "vm0", "-w", file)
	Eventually(file).Should(BeAnExistingFile())
	found := run()
	Expect(stop()).To(fixture.HaveExited(0))
	results = append(results, found...)
	for _, r := range found {
		Expect(r.Wrong).To(BeEmpty(), r.Cell.String())
	}
	good, bad, naks := countICRCs(file)
	GinkgoWriter.Printf("%d packets with the right ICRC, %d with a wrong one\n", good, bad)
	Expect(bad).To(BeZero())
	Expect(good).To(BeNumerically(">", 2*len(list)))
	return naks
}

var _ = Describe("every operation, both ways", Ordered, func() {
	It("has the right result over IPv4 at every path MTU", func() { beRight(cells("IPv4", mtus, 1, 0)) })

	It("has the right result over IPv6", func() { beRight(cells("IPv6", mtus, 2, 1)) })

	It("has the right result over link-local addresses", func() { beRight(cells("link-local", mtus, 0, 2)) })

	It("has the right result over the unreliable services", func() { beRight(slices.Concat(unreliable(1, 0), unreliable(2, 1))) })

	It("ends with the right status after a mistake of the application", func() {
		naks := beRight(troubles())
		GinkgoWriter.Println("refused on the wire:", naks)
		for _, want := range []string{
			"ours NAK_REM_ACCESS", "rxe NAK_REM_ACCESS", "ours NAK_INV_REQ", "rxe NAK_REM_OP", "ours RNR_NAK", "rxe RNR_NAK",
		} {
			Expect(naks).To(HaveKey(want))
		}
		Expect(naks).NotTo(HaveKey("ours NAK_REM_OP"))
	})

	It("has the right result on a link that loses, doubles and reorders packets", func() {
		spoilLink()
		beRight(cells("lossy", []int{256, 1024, 4096}, 1, 0))
	})

	It("has the right result on such a link with several queue pairs, in all variations", func() {
		spoilLink()
		beRightTogether(variations(), ask.VerbsPorts)
	})
})

// troubles are the mistakes of applications, with the NAK that each NIC as the target sends.
func troubles() []cell {
	var out []cell
	add := func(t trouble, byOurs, byRxe int, ops ...string) {
		for _, op := range ops {
			sizes := []int{100, 100, 100}
			if op == "faa" || op == "cas" {
				sizes = []int{8, 8, 8}
			}
			c := cell{Op: op, Type: "rc", Link: "IPv4", MTU: 1024, GID: 1, Sizes: sizes, Depth: 3, Pieces: 1, Trouble: t}
			c.Ours, c.Want = true, byRxe
			out = append(out, c)
			c.Ours, c.Want = false, byOurs
			out = append(out, c)
		}
	}
	add(wrongKey, remAccess, remAccess, "write", "read", "cas", "faa")
	add(outOfRange, remAccess, remAccess, "write", "read", "faa")
	// The specification asks for a NAK for an invalid request (9.7.5.2.4); rxe sends remote
	// operational error.
	add(tooLong, remInvReq, remOp, "send", "send_imm")
	add(lateReceive, 0, 0, "send", "send_imm", "write_imm")
	add(noReceive, rnrRetryExc, rnrRetryExc, "send", "write_imm")
	add(noQueuePair, retryExc, retryExc, "send", "write", "read", "cas")
	return out
}

// spoilLink loses, copies and reorders packets of the guest's link until the end of the spec.
func spoilLink() {
	GinkgoHelper()
	for _, f := range [][]string{{"loss", "10%"}, {"duplicate", "5%"}, {"reorder", "5%"}} {
		rack.OK("inject", f[0], f[1], "--class", "roce", "--link", "vm0", "--dir", "both")
	}
	spoiled = true
	DeferCleanup(func() {
		rack.OK("heal", "--all")
		spoiled = false
	})
}

// spoiled reports whether the guest's link loses packets at present.
var spoiled bool

// countICRCs reads a capture and checks each RoCEv2 packet with a computation that shares no code
// with the NIC's.
func countICRCs(file string) (good, bad int, naks map[string]int) {
	GinkgoHelper()
	f := open(file)
	defer f.Close()
	r, err := pcapng.NewReader(f)
	Expect(err).NotTo(HaveOccurred())
	naks = map[string]int{}
	var p pcapng.Packet
	for {
		err := r.Next(&p)
		if errors.Is(err, io.EOF) {
			return good, bad, naks
		}
		Expect(err).NotTo(HaveOccurred())
		var frame wire.Frame
		if errors.Is(wire.ParseFrame(p.Data, &frame), wire.ErrNotRoCE) {
			continue
		}
		if icrcIsRight(p.Data) && wire.CheckICRC(p.Data) {
			good++
		} else {
			bad++
		}
		if s := frame.AETH.Syndrome; frame.BTH.Opcode == wire.RCAck && !s.IsAck() {
			text := s.String()
			if s.IsRNR() {
				text = "RNR_NAK"
			}
			naks[initiator(frame.SrcAddr().Unmap() != guestIPv4)+" "+text]++
		}
	}
}
