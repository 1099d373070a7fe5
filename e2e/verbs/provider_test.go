package verbs

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
)

// described is what ibv_devinfo says of the device on cn0. libibverbs loads all providers, so only
// what the device can do tells which of them serves it.
func described(rack *fixture.Rack) string {
	GinkgoHelper()
	return rack.OK("exec", "cn0", "--", "ibv_devinfo", "-v")
}

// ownClock is in the description if our provider serves the device; that of rxe has no clock.
const ownClock = "hca_core_clock:"

// xrcFlag is there if the provider has XRC: that of rxe has none.
const xrcFlag = "XRC"

// All other specs of this suite run with the default.
var _ = Describe("the provider for libibverbs", func() {
	It("is that of rdmalab by default", func() {
		rack := fixture.Up(fixture.Small)
		Expect(rack.OK("env", "cn0")).To(MatchRegexp(`(?m)^export RDMAV_DRIVERS='.*/providers/librdmalab'$`))
		Expect(described(rack)).To(And(ContainSubstring(ownClock), ContainSubstring(xrcFlag)))
	})

	It("is that of rdma-core if it is chosen, and most programs run as with ours", func() {
		GinkgoT().Setenv(uverbs.EnvProvider, uverbs.ProviderRXE)
		rack := fixture.Up(fixture.Small)
		Expect(rack.OK("env", "cn0")).NotTo(ContainSubstring("/providers/"))
		Expect(described(rack)).NotTo(Or(ContainSubstring(ownClock), ContainSubstring(xrcFlag)))
		rack.OK("exec", "cn0", "--", "timeout", "60", compileFile("testdata/kinds/noxrc.c"), "0")
		rallies(rack)
		wrestle(rack, append([]string{"ib_send_bw -n 100 -e", "ib_send_lat -n 50 -c UD"}, passive...)...)
		for _, m := range append([]fixture.Meeting{written, added}, lossy...) {
			m.Run(rack, "ms0")
		}
	})
})
