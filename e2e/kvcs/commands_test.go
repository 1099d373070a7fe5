package kvcs_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

var _ = Describe("the store on 1RMA NICs", Ordered, func() {
	var rack *fixture.Rack
	BeforeAll(func() { rack = fixture.Up(rackFile) })

	It("executes its commands", func() {
		Expect(rack.Run("kvcs", "get", "7").Stderr).To(ContainSubstring("`rdmalab kvcs start`"))
		Expect(rack.OK("kvcs", "start", "--keys", "1000", "--value", "3000")).
			To(Equal("made a table for 1000 keys with values of up to 3000 bytes, with replicas on ms0, ms1, ms2\n"))
		Expect(rack.OK("kvcs", "start")).To(HavePrefix("found a table for 1000 keys"))
		rack.OK("kvcs", "insert", "7", "hello")
		// On a busy machine a READ may end by timeout (20 ms): then the client READs again.
		Eventually(func() string {
			get := rack.Run("kvcs", "get", "7", "-v", "--from", "cn1")
			Expect(get.Stdout).To(Equal("hello\n"))
			return get.Stderr
		}, fixture.Patience).Should(ContainSubstring(" 2 round trips"))
		rack.OK("kvcs", "put", "7", "world", "--from", "cn1")
		Expect(rack.OK("kvcs", "get", "7")).To(Equal("world\n"))
		Expect(rack.OK("kvcs", "get", "7", "--from", "md0")).To(Equal("world\n"))
		rack.OK("kvcs", "upsert", "8", strings.Repeat("x", 3000))
		Expect(rack.OK("kvcs", "get", "8")).To(HaveLen(3001))
		Expect(rack.Run("kvcs", "insert", "7", "x").Stderr).To(ContainSubstring("key exists"))
		Expect(rack.Run("kvcs", "upsert", "8", strings.Repeat("x", 3001)).Stderr).To(ContainSubstring("value is too large"))
		rack.OK("kvcs", "delete", "7")
		Expect(rack.Run("kvcs", "get", "7").Stderr).To(ContainSubstring("no such key"))
		Expect(rack.Run("kvcs", "put", "7", "x").Stderr).To(ContainSubstring("no such key"))
		Expect(rack.Run("sherman", "start").Stderr).To(ContainSubstring("`rdmalab kvcs stop` first"))
	})

	It("gives linearizable answers, also under loss, copies and delays", func() {
		linearizable(rack)
		for _, fault := range [][]string{{"loss", "2%"}, {"duplicate", "10%"}, {"reorder", "10%", "--delay", "2ms"}} {
			for _, link := range []string{"cn0", "md0", "ms0"} {
				rack.OK(append(append([]string{"inject"}, fault...), "--link", link)...)
			}
		}
		linearizable(rack)
		rack.OK("heal")
		Eventually(replicas(rack), fixture.Patience).Should(Equal([]string{"ms0", "ms1", "ms2"}))
	})

	It("runs workloads on all compute hosts", func() {
		rack.OK("kvcs", "stop")
		for _, w := range []string{"a", "c"} {
			out := rack.OK("run", "ycsb", "--store", "kvcs", "--workload", w, "--keys", "300", "--clients", "6", "--warmup", "0s", "--ops", "100", "--duration", "60s", "-q")
			Expect(out).To(ContainSubstring("kvcs, workload " + w))
			Expect(out).NotTo(Or(ContainSubstring("failed"), ContainSubstring("wrong")))
		}
		// On a busy machine a replica may have been removed because it did not answer in time; it comes back.
		Eventually(func() string { return rack.OK("kvcs", "stat") }, fixture.Patience).
			Should(MatchRegexp(`(?m)^replicas: ms0, ms1, ms2\n\d+ changes; (.*\n)*cn1 +[1-9]`))
	})

	It("begins again with an empty table, and says so to clients of the former one", func() {
		rack.OK("kvcs", "insert", "100000", "old")
		Expect(rack.OK("kvcs", "start", "--fresh")).To(HavePrefix("made a table"))
		Expect(rack.Run("kvcs", "get", "100000").Stderr).To(ContainSubstring("no such key"))
		linearizable(rack)
	})
})

var _ = Describe("the end of a rack with kvcs", func() {
	It("leaves nothing behind", func() {
		before := fixture.Traces()
		rack := fixture.Up(rackFile)
		rack.OK("kvcs", "start")
		rack.OK("kvcs", "insert", "7", "hello")
		rack.OK("crash", "ms1")
		rack.OK("down")
		Expect(fixture.Traces()).To(Equal(before))
	})
})

var _ = Describe("a rack that is not for kvcs", func() {
	It("is told what it lacks", func() {
		rack := fixture.Up(hosts)
		Expect(rack.Run("kvcs", "start").Stderr).To(ContainSubstring("put `onerma: {}` into the rack file"))
		res := fixture.Run("run", "ycsb", "--on", "sim", "--store", "kvcs", "--clients", "2", "--keys", "10")
		Expect(res.Stderr).To(ContainSubstring("`rdmalab sim kvcs`"))
	})
	It("is told which hosts it lacks", func() {
		rack := fixture.Up("onerma: {}\nhosts:\n  - {name: cn0, role: compute}\n  - {name: ms0, role: memory, memory: 4MiB}\n")
		Expect(rack.Run("kvcs", "start").Stderr).To(ContainSubstring("give one `role: metadata` in the rack file"))
	})
})
