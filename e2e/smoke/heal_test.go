package smoke

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

var _ = Describe("heal of what is no fault", func() {
	It("names the command that ends it", func() {
		rack := fixture.Up(fixture.Small)
		for hurt, end := range map[string]string{
			"link cn0 down": "link cn0 up", "crash cn0": "restart cn0", "crash cn0 --nic": "restart cn0 --nic", "hang cn0": "resume cn0",
			"hang cn0 --app": "resume cn0 --app", "partition cn0": "partition " + "--mend",
		} {
			rack.OK(words(hurt)...)
			Expect(rack.OK("heal", "cn0")).To(SatisfyAll(HavePrefix("healed 0 active faults of cn0\ncn0: "), ContainSubstring("`rdmalab "+end+"`")), hurt)
			rack.OK(words(end)...)
			Expect(rack.OK("heal", "cn0")).To(Equal("healed 0 active faults of cn0\n"), end)
		}
		for hurt, end := range map[string]string{"crash switch": "restart switch", "hang switch": "resume switch"} {
			rack.OK(words(hurt)...)
			for _, args := range []string{"heal switch", "heal cn0", "heal"} {
				s := rack.Run(words(args)...)
				Expect(s.Code).NotTo(BeZero(), args)
				Expect(s.Stderr).To(ContainSubstring("`rdmalab "+end+"`"), args)
			}
			rack.OK(words(end)...)
		}
		Expect(rack.Run("heal", "switch").Stderr).To(ContainSubstring("nothing is wrong with switch"))
	})
})
