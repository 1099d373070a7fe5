package interop_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// caseLimit is how long one of the programs may take in the guest.
const caseLimit = 5 * time.Minute

// casePrograms are C programs that print what a NIC refuses, and kindPrograms those with the cases of
// a kind of behaviour. Three are not here: forks, whose children a kernel refuses commands that they write to the descriptor of
// their parent (EACCES; "uverbs_write: process 121 (forks) changed security contexts after opening file descriptor" says the
// console), so that the program waits for them; sendrings, for which rxe has no command; xrc, which its provider refuses.
var (
	casePrograms = []string{"cells", "refused"}
	kindPrograms = []string{"kinds/datagrams", "kinds/objects", "kinds/pieces", "kinds/posts", "kinds/rights", "kinds/shared", "kinds/wakes"}
)

// compileCase makes one of them in dir.
func compileCase(dir, name string) error {
	out, err := exec.Command("gcc", "-O1", "-o", filepath.Join(dir, filepath.Base(name)), "../verbs/testdata/"+name+".c", "-libverbs").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// onBoth runs a program over our NIC and over the kernel's and returns the lines of both.
func onBoth(name string) (ours, theirs []string) {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	if err := compileCase(dir, name); err != nil {
		Skip("needs gcc and libibverbs-dev: " + err.Error())
	}
	ours = strings.Split(strings.TrimSpace(rack.OK("exec", "cn0", "--", filepath.Join(dir, name), "0")), "\n")
	theirs = strings.Split(strings.TrimSpace(linux.do(caseLimit, "/"+name, "1")), "\n")
	Expect(theirs).To(HaveLen(len(ours)))
	return ours, theirs
}

// elsewhere are lines that differ, with the reason.
var elsewhere = map[string]string{
	"RC: a wrong L_Key": "a local protection error as specified; rxe says local QP operation error",
	"UC: a wrong L_Key": "as RC; and a failed send of UC stops the send queue alone, IBTA 10.3.1/sqe",
	"UD: a wrong L_Key": "as UC",

	"value: path MTU 0":              "no path MTU has this number; rxe goes on with a negative one",
	"value: RNR timer 32":            "the field has 5 bits; rxe stores any byte",
	"value: retries 8":               "the field has 3 bits; rxe stores any byte",
	"value: RNR retries 8":           "the field has 3 bits; rxe stores any byte",
	"value: responder resources 255": "more than the device has; rxe checks the initiator's alone",
}

// kernelDiffers are cases of kindPrograms that the kernel's rxe, or its provider, does not hold, with
// the reason. Over our NIC all hold but for what is the provider's (e2e/verbs).
var kernelDiffers = map[string]string{
	"unequal pieces of ibv_wr_set_sge_list are gathered": "the provider multiplies the first length, and rxe believes the sum; our NIC adds the pieces",
	"pieces of ibv_wr_set_inline_data_list":              "the provider copies each piece to the beginning of the data",
	"another protection domain":                          "rxe says local QP operation error for a wrong L_Key, as of refused.c",
	"a message longer than its receive":                  "rxe finds it when it copies, and says so with other statuses",
	"a receive that may not be written":                  "rxe has a status of its own for it",
	"a multicast group":                                  "rxe does not loop datagrams to groups back to its own queue pairs",
	"a window's range and rights":                        "rxe checks the region's range and not the window's",
	"a window that a SEND invalidates":                   "rxe does not report the key",
}

// The same programs over our NIC and over the kernel's.
var _ = Describe("what a NIC refuses", func() {
	It("is the same for every pair of states, service and two attributes more or less of ibv_modify_qp", func() {
		ours, theirs := onBoth("cells")
		Expect(len(ours)).To(BeNumerically(">", 100))
		cells, others := 0, []string{}
		for i := range ours {
			cells += len(ours[i][strings.LastIndexByte(ours[i], ' ')+1:])
			if ours[i] != theirs[i] {
				others = append(others, differences(ours[i], theirs[i])...)
			}
		}
		GinkgoWriter.Println(cells, "cells")
		Expect(others).To(BeEmpty()) // IBTA 11.2.5.2/attributes
	})

	It("is the same when objects are made or modified and work requests are posted, but for what is listed", func() {
		ours, theirs := onBoth("refused")
		var others []string
		for i := range ours {
			if name := strings.TrimSpace(ours[i][:min(48, len(ours[i]))]); (ours[i] == theirs[i]) != (elsewhere[name] == "") {
				others = append(others, "ours "+ours[i]+", theirs "+theirs[i])
			}
		}
		Expect(others).To(BeEmpty())
	})
})

var _ = Describe("cases of a kind of behaviour", func() {
	for _, name := range kindPrograms {
		It("are held by the kernel's NIC, but for what is listed: "+filepath.Base(name), func() {
			if err := compileCase(GinkgoT().TempDir(), name); err != nil {
				Skip("needs gcc and libibverbs-dev: " + err.Error())
			}
			a := linux.start("/"+filepath.Base(name), "1", "2000")(caseLimit)
			Expect(a.Code).To(BeElementOf(0, 1), "%s\nconsole: %s", a.Output, linux.said())
			out := a.Output
			last, n := "", 0
			wrong := map[string]bool{}
			for line := range strings.Lines(out) {
				if strings.HasPrefix(line, "  wrong") {
					wrong[last] = true
				} else if before, _, ok := strings.Cut(line, " ["); ok {
					last, n = before, n+1
				}
			}
			Expect(n).To(BeNumerically(">", 4), out)
			for name := range wrong {
				Expect(kernelDiffers).To(HaveKey(name), out)
			}
		})
	}
})

// differences names the places at which two lines of the program differ.
func differences(ours, theirs string) (all []string) {
	at := strings.LastIndexByte(ours, ' ') + 1
	if len(ours) != len(theirs) || ours[:at] != theirs[:at] {
		return []string{"ours " + ours + ", theirs " + theirs}
	}
	var toggled []string
	toggled = append(toggled, "nothing")
	for i := range 21 {
		toggled = append(toggled, fmt.Sprint("bit ", i))
	}
	for i := range 21 {
		for k := i + 1; k < 21; k++ {
			toggled = append(toggled, fmt.Sprint("bits ", i, " and ", k))
		}
	}
	for i := range ours[at:] {
		if ours[at+i] != theirs[at+i] {
			all = append(all, fmt.Sprintf("%s changed by %s: ours %c, theirs %c", ours[:at-1], toggled[i], ours[at+i], theirs[at+i]))
		}
	}
	return all
}
