package clover_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// stats is the part of `clover stat -o json` that the specs use.
type stats struct{ Keys, LostKeys, Held, Linked, Broken, Losses, Recovered, Copies, Away uint64 }

var _ = Describe("a drill", Ordered, func() {
	var rack *fixture.Rack
	BeforeAll(func() {
		rack = fixture.Up(rackFile)
		rack.OK("clover", "start", "--lease", "1s")
	})

	// verdict runs clients on cn0 during a fault, and requires that their history is linearizable.
	verdict := func(meanwhile func(), flags ...string) {
		GinkgoHelper()
		sent := func() uint64 { return rack.Counters("cn0")["rdma_sends"] }
		before := sent()
		ended := make(chan fixture.Result, 1)
		go func() {
			defer GinkgoRecover()
			ended <- rack.Run(append([]string{"clover", "check", "--clients", "6", "--rounds", "250"}, flags...)...)
		}()
		Eventually(sent, fixture.Patience, "20ms").Should(BeNumerically(">", before+100))
		meanwhile()
		var res fixture.Result
		Eventually(ended, "3m").Should(Receive(&res))
		Expect(res).To(fixture.HaveExited(0))
		Expect(res.Stdout).To(ContainSubstring("\nlinearizable: "))
		Expect(res.Stdout).To(ContainSubstring("\nchains broken 0, nodes leaked "))
	}

	// steered runs f while the switch steers.
	steered := func(f func()) {
		GinkgoHelper()
		if fixture.FabricRun() { // one switch steers; those of a fabric only forward
			f()
			return
		}
		for _, ms := range []string{"ms0", "ms1"} {
			rack.OK("switch", "rules", "add", "id=steer-"+ms, "server="+ms, "action=steer")
		}
		f()
		rack.OK("switch", "rules", "remove", "steer-ms0", "steer-ms1")
	}

	// whole requires that no chain is broken, and that after some time every node is free or the
	// newest of a key.
	whole := func() {
		GinkgoHelper()
		var st stats
		Eventually(func(g Gomega) {
			st = stats{}
			rack.JSON(&st, "clover", "stat")
			g.Expect(st.Held).To(BeZero())
			g.Expect(st.Linked).To(Equal(st.Keys - st.LostKeys))
		}, fixture.Patience, "500ms").Should(Succeed())
		Expect(st.Broken).To(BeZero())
	}

	AfterEach(func() { rack.OK("heal") })

	It("loses the CMP_SWAP of a client that goes on", func() {
		verdict(func() {
			rack.OK("inject", "drop", "--opcode", "RC_CMP_SWAP", "--next", "3", "--link", "cn0", "--dir", "up")
			rack.OK("inject", "drop", "--opcode", "RC_ATOMIC_ACK", "--next", "3", "--link", "cn0", "--dir", "down")
		})
		whole()
	})

	It("kills clients during their operations: their nodes are recovered", func() {
		verdict(func() {
			dead := make(chan fixture.Result, 1)
			sent := rack.Counters("cn1")["rdma_sends"]
			go func() {
				defer GinkgoRecover()
				dead <- rack.Run("clover", "check", "--from", "cn1", "--clients", "4", "--rounds", "10000")
			}()
			Eventually(func() uint64 { return rack.Counters("cn1")["rdma_sends"] }, fixture.Patience, "20ms").Should(BeNumerically(">", sent+100))
			rack.OK("crash", "cn1")
			Eventually(dead, fixture.Patience).Should(Receive(fixture.HaveExited(1)))
			rack.OK("restart", "cn1")
		})
		whole()
	})

	It("crashes the metadata server: it finds its keys again, also when clients report together", func() {
		for _, reporter := range []string{"client", "process"} {
			verdict(func() {
				rack.OK("crash", "md0")
				rack.OK("restart", "md0")
				rack.OK("clover", "start", "--lease", "1s")
			}, "--reporter", reporter)
			var st stats
			rack.JSON(&st, "clover", "stat")
			Expect(st.Recovered).To(BeNumerically(">", 0))
			whole()
		}
	})

	It("crashes a memory server: its keys are reported as lost, and never served", func() {
		verdict(func() {
			rack.OK("crash", "ms1")
			rack.OK("restart", "ms1")
		}, "--loss")
		var st stats
		rack.JSON(&st, "clover", "stat")
		Expect(st.Losses).To(BeNumerically(">", 0))
		whole()
	})

	It("keeps two copies of each node: no key is lost with a memory server", func() {
		rack.OK("clover", "stop")
		rack.OK("clover", "start", "--fresh", "--lease", "1s", "--replicas", "2")
		DeferCleanup(func() {
			rack.OK("clover", "stop")
			rack.OK("clover", "start", "--fresh", "--lease", "1s")
		})
		rack.OK("clover", "insert", "5000", "hello")
		away := func() uint64 {
			st := stats{}
			rack.JSON(&st, "clover", "stat")
			Expect(st.Copies).To(BeEquivalentTo(2))
			return st.Away
		}
		verdict(func() { rack.OK("crash", "ms1") })
		Eventually(away, fixture.Patience, "100ms").Should(BeEquivalentTo(1), "ms0 is not away, or comes back")
		Expect(rack.OK("clover", "get", "5000")).To(Equal("hello\n"))
		rack.OK("restart", "ms1")
		Eventually(away, fixture.Patience, "100ms").Should(BeZero())
		verdict(func() {
			rack.OK("crash", "ms0")
			rack.OK("restart", "ms0")
		})
		Eventually(away, fixture.Patience, "100ms").Should(BeZero())
		Expect(rack.OK("clover", "get", "5000")).To(Equal("hello\n"))
		whole()
		status, refusal := 1, "the switch cannot steer requests of a store with copies"
		if fixture.FabricRun() {
			status, refusal = 2, "works with one switch"
		}
		res := rack.Run("run", "ycsb", "--workload", "a", "--clients", "2", "--steer", "both", "--duration", "100ms", "-q")
		Expect(res).To(fixture.HaveExited(status))
		Expect(res.Stderr).To(ContainSubstring(refusal))
	})

	It("crashes the switch while it steers", func() {
		steered(func() {
			verdict(func() {
				rack.EachSwitch("crash")
				rack.EachSwitch("restart")
			})
		})
		whole()
	})

	It("loses the CMP_SWAP of clients that share queue pairs, while the switch steers", func() {
		steered(func() {
			verdict(func() {
				rack.OK("inject", "drop", "--opcode", "RC_CMP_SWAP", "--next", "3", "--link", "ms0", "--dir", "down")
				rack.OK("inject", "drop", "--opcode", "RC_ATOMIC_ACK", "--next", "3", "--link", "ms1", "--dir", "up")
			}, "--share-qp", "3")
		})
		whole()
	})

	It("loses the CMP_SWAP of clients that die, and of some that die with the switch", func() {
		for _, box := range []bool{false, true} {
			steered(func() {
				verdict(func() {
					dead := make(chan fixture.Result, 1)
					sent := rack.Counters("cn1")["rdma_sends"]
					go func() {
						defer GinkgoRecover()
						dead <- rack.Run("clover", "check", "--from", "cn1", "--clients", "4", "--rounds", "10000")
					}()
					Eventually(func() uint64 { return rack.Counters("cn1")["rdma_sends"] }, "20s", "20ms").Should(BeNumerically(">", sent+100))
					rack.OK("inject", "drop", "--opcode", "RC_CMP_SWAP", "--next", "50", "--link", "ms0", "--dir", "down")
					rack.OK("crash", "cn1")
					if box {
						rack.EachSwitch("crash")
						rack.EachSwitch("restart")
					}
					Eventually(dead, "30s").Should(Receive(fixture.HaveExited(1)))
					rack.OK("heal")
					rack.OK("restart", "cn1")
				})
			})
			whole()
		}
	})

	It("cuts a client off, and makes a machine hang", func() {
		verdict(func() {
			rack.OK("partition", "cn0", "ms0", "--for", "1s")
			rack.OK("hang", "md0", "--for", "1s")
		})
		whole()
	})
})
