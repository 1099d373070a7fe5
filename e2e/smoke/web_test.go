package smoke

import (
	"io"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

var _ = Describe("web", func() {
	It("tells of the rack, changes it with the token alone, and records what a fault hit", func() {
		rack := fixture.Up(fixture.Small)
		address, token, found := strings.Cut(fixture.Serve(rack.Name, "web", "--control"), "#token=")
		Expect(found).To(BeTrue())
		Expect(fetch(address)).To(ContainSubstring("<title>rdmalab</title>"))
		Expect(fetch(address + "api/v1/rack")).To(MatchRegexp(`"name":"` + rack.Name + `".*"present":true.*"name":"cn0"`))
		Expect(fetch(address + "metrics")).To(ContainSubstring(`rdmalab_rack_up{rack="` + rack.Name + `"} 1`))

		post := func(token string) (int, string) {
			body := `{"kind":"drop","link":"cn0","dir":"up","opcodes":["RC_WRITE_*"],"next":1,"record":true}`
			q, err := http.NewRequest(http.MethodPost, address+"api/v1/faults", strings.NewReader(body))
			Expect(err).NotTo(HaveOccurred())
			q.Header.Set("Content-Type", "application/json")
			q.Header.Set("Authorization", "Bearer "+token)
			resp, err := http.DefaultClient.Do(q)
			Expect(err).NotTo(HaveOccurred())
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			Expect(err).NotTo(HaveOccurred())
			return resp.StatusCode, string(text)
		}
		status, _ := post("wrong")
		Expect(status).To(Equal(http.StatusUnauthorized))
		Expect(rack.Faults()).To(BeEmpty())

		stop := rack.Start("perf", "write_bw", "--from", "cn0", "--to", "ms0", "--size", "4096", "--iters", "100000000", "-q")
		Eventually(func() string { return fetch(address + "api/v1/rack") }).Should(MatchRegexp(`"name":"cn0"[^}]*"upPacketsPerSecond":[1-9]`))
		status, text := post(token)
		stop()
		Expect(status).To(Equal(http.StatusOK), text)
		Expect(text).To(And(ContainSubstring(`"output":"f1: `), ContainSubstring(`"ladder":"/api/v1/ladders/1"`)))
		Expect(fetch(address + "api/v1/ladders/1?format=text")).To(ContainSubstring("f1"))
		Expect(fetch(address + "api/v1/nodes/cn0/qps")).To(ContainSubstring(`"peer":"ms0"`))
	})
})
