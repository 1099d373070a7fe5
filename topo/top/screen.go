package top

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Sizes of the screen, in characters.
const (
	minWidth, minHeight = 76, 16
	// tallHeight is the height from which all panes are shown at once.
	tallHeight = 34
	// wideWidth is the width from which more columns are shown.
	wideWidth = 116
)

// Screen returns the whole screen as text, with attributes unless the style is plain.
func (m Model) Screen() string {
	switch {
	case m.width == 0:
		return "" // the first message gives the size
	case m.width < minWidth || m.height < minHeight:
		return fmt.Sprintf("%dx%d is too small:\nmake it %dx%d\nq quits", m.width, m.height, minWidth, minHeight)
	}
	tail := m.log()
	tail = append(tail, m.keys()...)
	rows := m.height - len(tail)
	var lines []string
	switch {
	case m.help:
		lines = m.helpPage(rows)
	case m.now == nil:
		lines = m.nothing(rows)
	default:
		lines = append(m.header(), m.body(rows-2)...)
	}
	return strings.Join(append(lines, tail...), "\n")
}

func (m Model) newPage() *page { return &page{style: m.style, width: m.width} }

// nothing returns the screen before the first sample.
func (m Model) nothing(rows int) []string {
	p := m.newPage()
	p.say(bold, "rdmalab top")
	p.say(plain, "")
	if m.gone != "" {
		p.say(bad, oneLine(m.gone))
		p.say(plain, "waiting for it to come up …")
	} else {
		p.say(plain, "asking the rack …")
	}
	return p.fit(rows)
}

// header returns two lines: one about the rack, and one with the names of the panes or an error.
func (m Model) header() []string {
	p, s := m.newPage(), m.now
	p.add(func(l *line) {
		l.text(bold, "rdmalab top")
		l.text(plain, "  "+s.Rack+" ")
		if m.gone == "" {
			l.text(statePaint(s.State), stateOf(s))
		} else {
			l.text(bad, "gone")
		}
		l.text(plain, fmt.Sprintf("  %s %s", s.Program, uptime(s.Uptime)))
		active := 0
		for _, f := range s.Faults {
			if f.State == "active" {
				active++
			}
		}
		l.text(plain, "  ")
		l.text(either(active > 0, warn, plain), plural(active, "fault"))
		l.text(plain, "  ")
		l.text(either(s.Captures > 0, accent, plain), plural(s.Captures, "capture"))
		l.text(faint, "  "+s.At.Format("15:04:05"))
	})
	p.add(func(l *line) {
		if m.gone != "" {
			l.text(bad, "the rack is gone; this is its last state. ")
			l.text(plain, oneLine(m.gone))
			return
		}
		if m.height >= tallHeight {
			return
		}
		for i, title := range paneTitles {
			here := Pane(i) == m.pane
			l.text(either(here, chosen, plain), fmt.Sprintf(either(here, "%d[%s]", "%d %s "), i+1, title))
			l.text(plain, "  ")
		}
	})
	return p.lines
}

var paneTitles = [panes]string{"links", "queue pairs", "switch"}

func (m Model) body(rows int) []string {
	r := since(m.before, m.now)
	if m.height < tallHeight {
		return [panes]func(Model, int, *rates) []string{Model.linkPage, Model.qpPage, Model.switchPage}[m.pane](m, rows, r)
	}
	links := len(m.now.Nodes) + 2 + m.storeLines()
	if n := len(m.faultLines()); n > 0 {
		links += n + 1
	}
	links = min(links, rows/2)
	rest := rows - links - 2
	share := [panes]int{Links: rest / 2, QPs: rest * 3 / 4, SwitchPane: rest / 4}[m.pane] // the chosen pane gets more lines
	qps := max(min(len(m.now.QPs)+2, share), 3)
	out := m.linkPage(links, r)
	out = append(append(out, m.title(QPs)), m.qpPage(qps, r)...)
	out = append(append(out, m.title(SwitchPane)), m.switchPage(rest-qps, r)...)
	return out
}

// stateOf returns the state of a rack. If only one node is in that state, its name is added,
// because a rack with one crashed host has not crashed as a whole.
func stateOf(s *Sample) string {
	name, n := "", 0
	for i := range s.Nodes {
		if s.Nodes[i].State == s.State {
			name, n = s.Nodes[i].Name, n+1
		}
	}
	switch {
	case s.State == "up" || n == 0:
		return s.State
	case n == 1:
		return name + " " + s.State
	}
	return fmt.Sprintf("%d of %d %s", n, len(s.Nodes), s.State)
}

// title returns the line above a pane of a tall screen.
func (m Model) title(p Pane) string {
	t := m.newPage()
	t.add(func(l *line) {
		dash := either(m.style.ASCII, "-", "─")
		head := fmt.Sprintf("%s%s %d %s ", dash, dash, p+1, paneTitles[p])
		l.text(either(p == m.pane, accent, faint), head+strings.Repeat(dash, max(0, m.width-len([]rune(head)))))
	})
	return t.lines[0]
}

// withoutName returns the output of a command without the program's name before an error.
func withoutName(output string) string {
	return strings.TrimPrefix(strings.TrimPrefix(output, "rdmalab: "), filepath.Base(os.Args[0])+": ")
}

// log returns the last commands and their results. A result that does not fit on the line of its
// command is on a separate line.
func (m Model) log() []string {
	most := either(m.height >= tallHeight, 6, 3)
	p := m.newPage()
	for _, e := range m.entries[max(0, len(m.entries)-most):] {
		command, outcome, mark := "", oneLine(withoutName(e.output)), plain
		if e.args != nil {
			command = "$ rdmalab " + strings.Join(e.args, " ") + "  "
		}
		switch {
		case e.stage == waits:
			outcome, mark = "waits", faint
		case e.stage == runs:
			outcome, mark = "runs …", faint
		case e.failed:
			mark = bad
		}
		whole := len([]rune(command+outcome)) <= m.width
		p.add(func(l *line) {
			l.text(accent, command)
			if whole {
				l.text(mark, outcome)
			}
		})
		if !whole {
			p.add(func(l *line) { l.text(mark, "  "+outcome) })
		}
	}
	if len(p.lines) == 0 {
		p.say(faint, "keys run commands, which are shown here")
	}
	return p.lines[max(0, len(p.lines)-most):]
}

func (m Model) keys() []string {
	p := m.newPage()
	capture := either(m.capture != 0, "stop", "capture")
	name := "-"
	if m.now != nil && m.chosen < len(m.now.Nodes) {
		name = m.now.Nodes[m.chosen].Name
	}
	p.add(func(l *line) {
		l.text(bold, name)
		l.text(plain, ":")
		for _, k := range [][2]string{
			{"l", "loss"}, {"d", "delay"}, {"h", "heal"}, {"c", "crash"}, {"r", "restart"}, {"p", capture}, {"tab", "pane"}, {"?", "help"}, {"q", "quit"},
		} {
			l.text(plain, " ")
			l.text(bold, k[0])
			l.text(plain, "="+k[1])
		}
	})
	return p.lines
}

func (m Model) helpPage(rows int) []string {
	p := m.newPage()
	p.say(bold, "rdmalab top: keys")
	p.say(plain, "")
	for _, k := range []struct{ key, does, command string }{
		{"up down", "choose a host or the switch", ""},
		{"tab 1 2 3", "choose a pane: links, queue pairs, switch", ""},
		{"pgup pgdn", "scroll the queue pairs", ""},
		{"l", "lose 10% of the frames of the chosen link", "inject loss 10% --link HOST"},
		{"d", "delay the frames of the chosen link", "inject delay 1ms --link HOST"},
		{"h", "end the faults of the chosen link", "heal --link HOST"},
		{"H", "end all faults", "heal --all"},
		{"c", "crash the chosen host or the switch", "crash HOST"},
		{"r", "restart it", "restart HOST"},
		{"p", "start a capture of the link into a file; end it", "capture HOST -w FILE"},
		{"q", "quit; the rack goes on, and a capture ends", ""},
	} {
		p.add(func(l *line) {
			l.left(bold, 10, k.key)
			l.left(plain, 50, k.does)
		})
		if k.command != "" && rows > 26 {
			p.say(faint, "           rdmalab "+k.command)
		}
	}
	p.say(plain, "")
	p.say(plain, "up is from a host to the switch, down is back. Rates are of the last second.")
	p.say(faint, "any key goes back")
	return p.fit(rows)
}

func statePaint(s string) paint {
	switch s {
	case "up", "RTS", "Known":
		return fine
	case "crashed", "hung", "silent", "ERROR", "ERR", "SQE", "nic-down", "missing", "failed", "broken":
		return bad
	case "link-down", "app-crashed", "app-hung", "down", "no-carrier":
		return warn
	}
	return plain
}

func plural(n int, what string) string {
	return fmt.Sprintf(either(n == 1, "%d %s", "%d %ss"), n, what)
}

func uptime(d time.Duration) string {
	switch {
	case d <= 0:
		return "-"
	case d < time.Minute:
		return d.Truncate(time.Second).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}
