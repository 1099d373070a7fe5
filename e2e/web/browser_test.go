//go:build chromium

package web

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// answerWait bounds how long the browser may take to answer.
const answerWait = time.Minute

// browser is a headless Chromium with one tab, driven by the DevTools protocol over a pipe.
type browser struct {
	in      io.Writer
	session string

	mu      sync.Mutex
	next    int
	waiting map[int]chan message
	errors  []string // what the page has written to its console as an error, and exceptions
}

// message is one of the DevTools protocol.
type message struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    any             `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// chromium returns the path of a Chromium, or "" if there is none.
func chromium() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			return p
		}
	}
	return ""
}

// openBrowser starts a Chromium that ends with the spec.
func openBrowser() *browser {
	GinkgoHelper()
	program := chromium()
	if program == "" {
		Skip("no Chromium here: apt-get install chromium")
	}
	toChrome, in, err := os.Pipe()
	Expect(err).NotTo(HaveOccurred())
	out, fromChrome, err := os.Pipe()
	Expect(err).NotTo(HaveOccurred())
	profile, err := os.MkdirTemp("", "chromium")
	Expect(err).NotTo(HaveOccurred())
	cmd := exec.Command(program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
		"--disable-background-networking", "--disable-component-update", "--user-data-dir="+profile, "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{toChrome, fromChrome} // 3 and 4
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	Expect(cmd.Start()).To(Succeed())
	Expect(toChrome.Close()).To(Succeed())
	Expect(fromChrome.Close()).To(Succeed())
	b := &browser{in: in, waiting: make(map[int]chan message)}
	ended := make(chan struct{})
	go func() { defer close(ended); b.read(out) }()
	DeferCleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // with its children
		_ = cmd.Wait()                                      // it was killed
		_ = in.Close()
		_ = out.Close()
		<-ended
		// A child that is not gone yet can still write to the folder.
		Eventually(os.RemoveAll).WithArguments(profile).WithTimeout(answerWait).Should(Succeed())
	})
	var target struct{ TargetID string }
	b.call(&target, "Target.createTarget", map[string]any{"url": "about:blank"})
	var session struct{ SessionID string }
	b.call(&session, "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true})
	b.session = session.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.call(nil, domain+".enable", nil)
	}
	return b
}

// read hands answers to those who wait, until the browser ends.
func (b *browser) read(out io.Reader) {
	r := bufio.NewReader(out)
	for {
		text, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m struct {
			message
			Params json.RawMessage `json:"params"`
		}
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		if ch := b.waiting[m.ID]; m.ID != 0 && ch != nil {
			delete(b.waiting, m.ID)
			ch <- m.message
		}
		switch m.Method {
		case "Runtime.exceptionThrown":
			b.errors = append(b.errors, string(m.Params))
		case "Log.entryAdded":
			var p struct {
				Entry struct{ Level, Text, URL string }
			}
			if json.Unmarshal(m.Params, &p) == nil && p.Entry.Level == "error" {
				b.errors = append(b.errors, p.Entry.Text+" "+p.Entry.URL)
			}
		}
		b.mu.Unlock()
	}
}

// call calls a method of the protocol.
func (b *browser) call(out any, method string, params any) {
	GinkgoHelper()
	b.mu.Lock()
	b.next++
	ch := make(chan message, 1)
	b.waiting[b.next] = ch
	text, err := json.Marshal(message{ID: b.next, SessionID: b.session, Method: method, Params: params})
	b.mu.Unlock()
	Expect(err).NotTo(HaveOccurred())
	_, err = b.in.Write(append(text, 0))
	Expect(err).NotTo(HaveOccurred())
	select {
	case m := <-ch:
		if m.Error != nil {
			Fail(fmt.Sprintf("%s: %s", method, m.Error.Message))
		}
		if out != nil {
			Expect(json.Unmarshal(m.Result, out)).To(Succeed())
		}
	case <-time.After(answerWait):
		Fail(method + ": the browser does not answer")
	}
}

// open opens an address.
func (b *browser) open(url string) {
	GinkgoHelper()
	b.call(nil, "Page.navigate", map[string]any{"url": url})
}

// eval returns the text of a JavaScript expression.
func (b *browser) eval(expression string) string {
	GinkgoHelper()
	var v struct {
		Result           struct{ Value any }
		ExceptionDetails *struct{ Text string }
	}
	b.call(&v, "Runtime.evaluate", map[string]any{"expression": "String(" + expression + ")", "awaitPromise": true, "returnByValue": true})
	if v.ExceptionDetails != nil {
		return "exception: " + v.ExceptionDetails.Text
	}
	return fmt.Sprint(v.Result.Value)
}

// text returns a function that evaluates an expression, for Eventually.
func (b *browser) text(expression string) func() string {
	return func() string { return b.eval(expression) }
}

// click clicks on the middle of the first element of a selector, as a mouse does.
func (b *browser) click(selector string) {
	GinkgoHelper()
	quoted, err := json.Marshal(selector)
	Expect(err).NotTo(HaveOccurred())
	var at struct{ X, Y float64 }
	Eventually(func() error {
		text := b.eval(fmt.Sprintf(`(() => { const e = document.querySelector(%s); if (!e) return ''; e.scrollIntoView({block: 'center', behavior: 'instant'});
			const r = e.getBoundingClientRect(), x = r.x + r.width / 2, y = r.y + r.height / 2;
			return e.contains(document.elementFromPoint(x, y)) ? JSON.stringify({X: x, Y: y}) : '' })()`, quoted))
		before := at
		if err := json.Unmarshal([]byte(text), &at); err != nil {
			return err
		}
		if at != before {
			return errors.New("it moves") // the page is being laid out
		}
		return nil
	}).WithTimeout(answerWait).Should(Succeed(), selector)
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		b.call(nil, "Input.dispatchMouseEvent", map[string]any{"type": kind, "x": at.X, "y": at.Y, "button": "left", "clickCount": 1})
	}
}

// look sets the width of the window and the colours.
func (b *browser) look(width int, scheme string) {
	GinkgoHelper()
	b.call(nil, "Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600})
	b.call(nil, "Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}})
}

// picture writes a picture of the whole page into out/web.
func (b *browser) picture(name string) {
	GinkgoHelper()
	var size struct {
		CSSContentSize struct{ Width, Height float64 }
	}
	b.call(&size, "Page.getLayoutMetrics", nil)
	var shot struct{ Data string }
	b.call(&shot, "Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true, "clip": map[string]any{
		"x": 0, "y": 0, "width": size.CSSContentSize.Width, "height": min(size.CSSContentSize.Height, 4000), "scale": 1,
	}})
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	Expect(err).NotTo(HaveOccurred())
	dir := filepath.Join("..", "..", "out", "web")
	Expect(os.MkdirAll(dir, 0o755)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644)).To(Succeed())
}

// noErrors checks that the page has reported no error.
func (b *browser) noErrors() {
	GinkgoHelper()
	b.mu.Lock()
	defer b.mu.Unlock()
	Expect(b.errors).To(BeEmpty())
}
