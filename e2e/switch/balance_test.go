package switch_test

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"github.com/rdmalab/rdmalab/e2e/fixture"
	"github.com/rdmalab/rdmalab/swordbox/lookuptable"
)

const (
	balanceRounds = 120                    // of tcpRounds
	balanceFirst  = 20                     // after so many it says that it goes on
	balancePause  = 100 * time.Millisecond // between two rounds
)

// tcpNamed answers each byte of each connection with the name at the front of its argument.
func tcpNamed(arg string) error {
	name, addr, _ := strings.Cut(arg, " ")
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	defer l.Close()
	fmt.Println("listening")
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			one := make([]byte, 1)
			for {
				if _, err := io.ReadFull(c, one); err != nil {
					return
				}
				if _, err := c.Write([]byte(name)); err != nil {
					return
				}
			}
		}()
	}
}

// tcpRounds asks for a name of three bytes, again and again in one connection, and checks that it stays.
func tcpRounds(addr string) error {
	c, err := net.DialTimeout("tcp", addr, natPatience)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(2 * natPatience)); err != nil {
		return err
	}
	first, name := "", make([]byte, 3)
	for i := range balanceRounds {
		if _, err := c.Write([]byte{'?'}); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, name); err != nil {
			return err
		}
		switch first {
		case "":
			first = string(name)
		case string(name):
		default:
			return fmt.Errorf("the connection went to %s, and round %d to %s", first, i, name)
		}
		if i == balanceFirst {
			fmt.Println("goes on with", first)
		}
		time.Sleep(balancePause)
	}
	fmt.Println("all rounds with", first, "of", c.RemoteAddr())
	return nil
}

var _ = Describe("A virtual address", Ordered, func() {
	var rack *fixture.Rack

	BeforeAll(func() { rack = fixture.Up(boxed) })

	It("keeps connections with their hosts while the pool changes and the switch restarts", func() {
		rack.OK("switch", "rules", "add", "id=web", "server=cn0", "action=lookup", "table=ms1", "capacity=1024", "cells=512", "vip=cn1", "vport=80", "pool=ms0", "cache=0")
		Eventually(func() []lookuptable.Item {
			var list []lookuptable.Item
			rack.JSON(&list, "switch", "lookup")
			return list
		}, "30s").Should(And(HaveLen(1), HaveEach(HaveField("Table", ConsistOf(HaveField("Up", true))))))
		for _, host := range []string{"ms0", "ms1"} {
			named, _ := inHost(rack, host, "tcp-named "+host+" 0.0.0.0:80")
			Eventually(named, "30s").Should(gbytes.Say("listening"))
		}
		virtual := rack.Host("cn1").IPv4 + ":80"
		out, ended := inHost(rack, "cn0", "tcp-rounds "+virtual)
		Eventually(out, "60s").Should(gbytes.Say("goes on with ms0"))

		Expect(rack.OK("switch", "lookup", "pool", "ms1")).To(ContainSubstring("new connections go to ms1; ms0 keeps those that it has"))
		later, laterEnded := inHost(rack, "cn0", "tcp-rounds "+virtual)
		Eventually(later, "60s").Should(gbytes.Say("goes on with ms1"))
		Expect(strings.Count(rack.OK("switch", "lookup", "list", "web"), "dst=")).To(Equal(2))
		rack.OK("crash", "switch")
		rack.OK("restart", "switch")

		var err error
		for what, done := range map[string]chan error{"ms0": ended, "ms1": laterEnded} {
			Eventually(done, "120s").Should(Receive(&err))
			Expect(err).NotTo(HaveOccurred(), what)
		}
		Expect(string(out.Contents())).To(ContainSubstring("all rounds with ms0 of " + virtual))
		Expect(string(later.Contents())).To(ContainSubstring("all rounds with ms1 of " + virtual))
		Expect(rack.SwitchCounters()["lookup"]["returned"]).NotTo(BeZero())
	})

	It("refuses a pool of no host, and a pool without a virtual address", func() {
		Expect(rack.Run("switch", "lookup", "pool", "cn99").Stderr).To(ContainSubstring("no host of the rack"))
		rack.OK("switch", "rules", "remove", "web")
		Expect(rack.Run("switch", "lookup", "pool", "ms0").Stderr).To(ContainSubstring("no rule has a virtual address"))
	})
})

var _ = Describe("A table with masks", Ordered, func() {
	var rack *fixture.Rack

	BeforeAll(func() { rack = fixture.Up(boxed) })

	It("uses the entry under the first mask that has one", func() {
		rack.OK("switch", "rules", "add", "id=acl", "server=cn0", "action=lookup", "table=ms1", "capacity=1024", "cells=512", "match=ternary", "masks=to+proto+dport,to/24+proto,any")
		Eventually(func() []lookuptable.Item {
			var list []lookuptable.Item
			rack.JSON(&list, "switch", "lookup")
			return list
		}, "30s").Should(And(HaveLen(1), HaveEach(HaveField("Table", ConsistOf(HaveField("Up", true))))))
		to := netip.MustParseAddr(rack.Host("cn1").IPv4)
		net24 := strings.TrimSuffix(to.String(), fmt.Sprint(to.As4()[3])) + "0"
		rack.OK("switch", "lookup", "add", "acl", "mask=2", "to="+net24, "proto=udp", "drop")
		rack.OK("switch", "lookup", "add", "acl", "mask=1", "to=cn1", "proto=udp", "dport=9", "dscp=46")
		Expect(rack.OK("switch", "lookup", "list", "acl")).To(ContainSubstring("mask=1 to=" + to.String() + " proto=udp dport=9 dscp=46"))
		counters := rack.SwitchCounters()["lookup"]
		rack.OK("exec", "cn0", "--", "/bin/bash", "-c", "for i in {1..10}; do echo x > /dev/udp/"+to.String()+"/9; echo x > /dev/udp/"+to.String()+"/10; done 2>/dev/null || true")
		Eventually(func() uint64 { return rack.SwitchCounters()["lookup"]["denied"] - counters["denied"] }, "30s").Should(BeNumerically("==", 10))
		Expect(rack.SwitchCounters()["lookup"]["hits"] + rack.SwitchCounters()["lookup"]["cached"] - counters["hits"] - counters["cached"]).To(BeNumerically(">=", 15))
	})
})
