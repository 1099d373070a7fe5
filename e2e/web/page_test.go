//go:build chromium

package web

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// patience bounds each wait for the page.
const patience = time.Minute

var _ = Describe("the page", Ordered, func() {
	var rack *fixture.Rack
	BeforeAll(func() {
		rack = fixture.Up(fixture.Small)
		SetDefaultEventuallyTimeout(patience)
	})

	It("injects a fault by a click and shows it in the ladder", func() {
		stop := rack.Start("perf", "write_bw", "--from", "cn0", "--to", "ms0", "--size", "4096", "--iters", "100000000", "-q")
		DeferCleanup(func() { stop() })
		b := openBrowser()
		b.look(1280, "light")
		address := fixture.Serve(rack.Name, "web", "--control")
		b.open(address)
		Eventually(b.text(`document.querySelector('#rack').textContent`)).Should(Equal(rack.Name))
		Expect(b.eval(`location.href`)).NotTo(ContainSubstring("token"), "the token stays in the address")
		Eventually(b.text(`document.querySelector('[data-node=cn0]')?.textContent`)).Should(MatchRegexp(`↑ [1-9][0-9.]* [kMG]b/s`))

		b.click("[data-node=cn0]")
		Expect(b.eval(`document.querySelector('#chosen').value`)).To(Equal("cn0"))
		b.eval(`(() => { const f = document.querySelector('#inject').elements; f.link.value = 'cn0'; f.kind.value = 'drop'; f.amount.value = '';
			f.opcode.value = 'RC_WRITE_*'; f.next.value = '1'; f.dir.value = 'up' })()`)
		b.click("#inject button[type=submit]")
		Eventually(b.text(`document.querySelector('#said').textContent`)).Should(And(ContainSubstring("$ rdmalab inject drop --link cn0"), ContainSubstring("f1: ")))
		const ladder = `document.querySelector('#frame').contentDocument?.querySelector('.row.lost')?.textContent`
		Eventually(b.text(ladder)).Should(ContainSubstring("f1"))
		Expect(b.eval(`document.querySelector('#frame').contentDocument.querySelector('.row.again') !== null`)).To(Equal("true"), "no packet is sent again")
		Eventually(b.text(`document.querySelector('#faultlist').textContent`)).Should(MatchRegexp(`f1loss --opcode RC_WRITE_FIRST.*1 hit`))
		Eventually(b.text(`document.querySelector('#qps').textContent`)).Should(MatchRegexp(`RTS.*ms0 0x`))
		b.picture("ladder-1280-light")

		b.eval(`(() => { const f = document.querySelector('#inject').elements; f.kind.value = 'loss'; f.amount.value = '1%'; f.opcode.value = ''; f.next.value = '0'; f.record.checked = false })()`)
		b.click("#inject button[type=submit]")
		Eventually(b.text(`document.querySelector('#faultlist').textContent`)).Should(MatchRegexp(`f2loss 1%.*[1-9][0-9 ]* hits?active`))
		Eventually(b.text(`document.querySelector('[data-node=cn0]').textContent`)).Should(MatchRegexp(`✕ [1-9]`))
		for _, scheme := range []string{"light", "dark"} {
			for _, width := range []int{1280, 400} {
				b.look(width, scheme)
				Eventually(b.text(`document.documentElement.scrollWidth <= innerWidth`)).Should(Equal("true"), "the page is wider than the window")
				Eventually(b.text(`document.querySelector('#picture svg').viewBox.baseVal.width === document.querySelector('#picture').clientWidth`)).Should(Equal("true"),
					"the topology has not taken the width of the window")
				b.eval(`document.querySelector('#frame').scrollIntoView({block: 'center', behavior: 'instant'})`) // a browser lays out what is seen
				b.picture(fmt.Sprintf("page-%d-%s", width, scheme))
			}
		}
		b.look(1280, "light")
		b.click(`[data-heal=f2]`)
		Eventually(b.text(`document.querySelector('#said').textContent`)).Should(ContainSubstring("healed f2"))
		Eventually(b.text(`document.querySelector('#faultlist').textContent`)).ShouldNot(ContainSubstring("active"))

		b.eval(`document.querySelector('#inject').elements.amount.value = '--all'`)
		b.click("#inject button[type=submit]")
		Eventually(b.text(`document.querySelector('#said.wrong')?.textContent`)).Should(ContainSubstring("--all"))
		b.noErrorsBut("422", "400")
	})

	It("is read-only without a token, and survives the rack", func() {
		b := openBrowser()
		b.look(1280, "dark")
		address := fixture.Serve(rack.Name, "web")
		b.open(address)
		Eventually(b.text(`document.querySelector('#mode').textContent`)).Should(Equal("read-only"))
		Eventually(b.text(`document.querySelector('#chosen').value`)).Should(Equal("cn0"))
		Expect(b.eval(`document.querySelector('#inject').hidden && document.querySelector('#actions').hidden`)).To(Equal("true"))

		rack.OK("crash", "ms0")
		Eventually(b.text(`document.querySelector('[data-node=ms0]').textContent`)).Should(ContainSubstring("crashed"))
		rack.OK("down")
		Eventually(b.text(`document.querySelector('#banner').textContent`)).Should(ContainSubstring("not up"))
		b.picture("gone-1280-dark")
		rack.Up()
		Eventually(b.text(`document.querySelector('#banner').hidden`)).Should(Equal("true"))
		Eventually(b.text(`document.querySelector('#summary .state').textContent`)).Should(Equal("up"))
		b.noErrorsBut("502", "503")
	})
})

// noErrorsBut is noErrors, but for answers with one of these statuses, which a browser reports.
func (b *browser) noErrorsBut(statuses ...string) {
	GinkgoHelper()
	b.mu.Lock()
	var rest []string
	for _, e := range b.errors {
		expected := false
		for _, s := range statuses {
			expected = expected || strings.Contains(e, "status of "+s)
		}
		if !expected {
			rest = append(rest, e)
		}
	}
	b.errors = rest
	b.mu.Unlock()
	b.noErrors()
}
