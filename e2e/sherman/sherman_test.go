package sherman_test

import (
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

var _ = Describe("the tree Sherman", func() {
	It("executes its commands in the published numbers of round trips", func() {
		rack := fixture.Up(forest)
		Expect(rack.OK("sherman", "start", "--fresh")).To(HavePrefix("made a tree on 2 memory servers: hardened pages of 1024 bytes"))
		Expect(rack.OK("sherman", "load", "--keys", "20000")).To(HavePrefix("20000 keys in"))
		rack.OK("sherman", "put", "7", "seven")
		Expect(rack.OK("sherman", "get", "7")).To(Equal("seven\n"))
		Expect(rack.Run("sherman", "get", "7", "-v").Stderr).To(ContainSubstring(" 1 round trips, 1132 bytes"))
		Expect(rack.Run("sherman", "put", "7", "eight", "-v").Stderr).To(ContainSubstring(" 3 round trips,"))
		Expect(rack.OK("sherman", "scan", "6", "-n", "3")).To(MatchRegexp(`(?s)^6\t.*7\teight\n8\t`))
		rack.OK("sherman", "delete", "7")
		Expect(rack.Run("sherman", "get", "7").Stderr).To(ContainSubstring("no such key"))
		Expect(rack.Run("sherman", "insert", "8", "x").Stderr).To(ContainSubstring("key exists"))
		Expect(rack.OK("sherman", "stat")).To(ContainSubstring("no lock is held"))
		v := whole(rack, 0)
		Expect(v.Tree.Content.Keys).To(Equal(19999))

		rack.OK("sherman", "insert", "7", "0123456789abcdef")
		By("running workloads with scans, and with updates of few keys")
		for _, w := range []string{"e", "a"} {
			out := rack.OK("run", "ycsb", "--store", "sherman", "--workload", w, "--keys", "20000", "--no-load", "--clients", "6", "--zipf", "1.2",
				"--warmup", "0s", "--ops", "30", "--duration", "60s", "--verify=false", "-q")
			Expect(out).To(ContainSubstring("sherman, workload " + w))
			Expect(out).NotTo(ContainSubstring("failed"))
		}
		whole(rack, 0)
		By("being found again by hosts that forgot it")
		rack.OK("sherman", "stop")
		Expect(rack.Run("sherman", "get", "8").Stderr).To(ContainSubstring("rdmalab sherman start"))
		Expect(rack.OK("sherman", "start")).To(HavePrefix("found a tree"))
		rack.OK("sherman", "get", "8")
	})

	It("gives linearizable answers while links fail, copies are torn, and NICs and the switch crash", func() {
		rack := fixture.Up(fixture.OneSwitch(forest))
		plant(rack, "--page", "256")
		for _, link := range []string{"cn0", "ms0", "ms1"} {
			for _, f := range [][]string{{"loss", "1%"}, {"duplicate", "2%"}, {"reorder", "2%"}} {
				rack.OK("inject", f[0], f[1], "--class", "roce", "--link", link, "--dir", "both")
			}
		}
		rack.OK("inject", "tear", "20%", "--host", "ms0")
		both := []<-chan fixture.Result{history(rack, "cn0", 4, 60, 40, "1000"), history(rack, "cn1", 4, 60, 40, "2000")}
		for _, h := range both {
			right(h)
		}
		rack.OK("heal", "tear-ms0")
		again := rack.Run("heal", "tear-ms0")
		Expect(again.Code).To(Equal(1), again.String())
		Expect(again.Stderr).To(ContainSubstring("there is no fault tear-ms0"))
		rack.OK("heal", "--all")

		By("with locks in the switch from here on")
		for _, ms := range []string{"ms0", "ms1"} {
			rack.OK("switch", "rules", "add", "id="+ms, "server="+ms, "action=atomics", "range=0-0x40000")
		}
		// The switch forwards a lock's requests as they are before its shared connections are up, and for
		// up to 5 s after a request on a client's connection was lost: the first history may be over by
		// then.
		base := 3000 // of keys that no history has used
		Eventually(func() uint64 {
			right(history(rack, "cn0", 4, 40, 20, strconv.Itoa(base)))
			base += 20
			return rack.SwitchCounters()["hardened"]["replaced"]
		}, fixture.Patience).ShouldNot(BeZero(), func() string { return rack.OK("switch", "connections") })

		By("while the switch, and the NIC of a memory server with its locks, are gone")
		atWork := busy(rack, "cn0")
		h := history(rack, "cn0", 4, 300, 40, "4000")
		atWork()
		rack.OK("crash", "switch", "--for", "1s")
		right(h)
		atWork = busy(rack, "cn1")
		h = history(rack, "cn1", 4, 300, 40, "5000")
		atWork()
		rack.OK("crash", "ms1", "--nic", "--for", "1s")
		right(h)
		whole(rack, 16)
	})

	It("gives linearizable answers while a memory server loses its memory, and can be made again while old clients run", func() {
		rack := fixture.Up(forest)
		plant(rack, "--page", "256")
		for k := range 3 { // so that both servers have pages
			right(history(rack, "cn2", 2, 60, 60, strconv.Itoa(100*k+1000)))
		}
		atWork := busy(rack, "cn0")
		h := []<-chan fixture.Result{history(rack, "cn0", 3, 3000, 40, "5000"), history(rack, "cn1", 3, 3000, 40, "5100")}
		atWork()
		rack.OK("crash", "ms1", "--for", "1s")
		told := ""
		for _, h := range h { // the answers that were given are linearizable, though the tree is lost
			var res fixture.Result
			Eventually(h, "3m").Should(Receive(&res))
			Expect(res.Stdout).To(ContainSubstring("linearizable: one order"), "%v", res)
			told += res.Stdout
		}
		Expect(told).To(ContainSubstring("lost with its memory server: memory server 1"), "the histories ended before the crash")
		Expect(rack.Run("sherman", "check")).To(fixture.HaveExited(1))
		By("making the tree again")
		Expect(rack.OK("sherman", "start", "--fresh", "--lease", lease.String())).To(HavePrefix("made a tree"))
		for _, from := range []string{"cn0", "cn1", "cn2"} { // these hosts had clients of the old tree
			rack.OK("sherman", "upsert", "1000", "again from "+from, "--from", from)
		}
		Expect(rack.OK("sherman", "get", "1000", "--from", "cn0")).To(Equal("again from cn2\n"))
		Expect(whole(rack, 0).Tree.Content.Keys).To(Equal(1))
	})

	It("takes the locks of clients that died or hang when their lease is over, and completes their splits", func() {
		rack := fixture.Up(forest)
		plant(rack, "--page", "256")
		rack.OK("sherman", "insert", "7", "0123456789abcdef")
		var held stat
		for try := range 40 { // in most tries, not in each, the client holds the lock when it is killed
			atWork := busy(rack, "cn1")
			h := history(rack, "cn1", 6, 10000, 1, "7")
			atWork()
			rack.OK("crash", "cn1")
			Eventually(h, fixture.Patience).Should(Receive())
			rack.JSON(&held, "sherman", "stat", "--from", "cn0")
			if len(held.Locks) > 0 {
				AddReportEntry("tries", try+1)
				break
			}
			rack.OK("restart", "cn1")
			plant(rack)
		}
		Expect(held.Locks).To(HaveLen(1), "no try left a lock behind")
		Expect(held.Locks[0].Host).To(Equal("cn1"))
		Expect(held.Locks[0].Left).To(And(BeNumerically(">", 0), BeNumerically("<=", float64(lease.Milliseconds()))))
		Expect(rack.OK("sherman", "stat", "--from", "cn2")).To(MatchRegexp(`ms[01]/\d+ +\d+ +cn1 `))

		began := time.Now()
		rack.OK("sherman", "upsert", "7", "taken", "--from", "cn0")
		AddReportEntry("delay", time.Since(began).String())
		Expect(time.Since(began)).To(BeNumerically("<", 10*lease))
		Expect(rack.OK("sherman", "stat", "--from", "cn0")).To(And(ContainSubstring("1 taken from the dead"), ContainSubstring("no lock is held")))
		Expect(rack.OK("sherman", "get", "7", "--from", "cn2")).To(Equal("taken\n"))

		By("killing and hanging clients that split pages")
		rack.OK("restart", "cn1")
		plant(rack)
		atWork := busy(rack, "cn1")
		first := history(rack, "cn1", 6, 10000, 4000, "100000")
		atWork()
		rack.OK("crash", "cn1")
		Eventually(first, fixture.Patience).Should(Receive())
		atWork = busy(rack, "cn2")
		second := history(rack, "cn2", 4, 300, 1000, "200000")
		atWork()
		rack.OK("hang", "cn2", "--for", (2 * lease).String())
		right(history(rack, "cn0", 4, 60, 200, "104000")) // behind the keys of the killed clients, which have values already
		rack.OK("sherman", "scan", "100000", "-n", "4000", "--from", "cn0")
		right(second)
		v := whole(rack, 20)
		Expect(len(v.Tree.Levels)).To(BeNumerically(">", 1))
	})
})
