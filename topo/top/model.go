package top

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
)

// Doer executes the requests of a Model.
type Doer interface {
	// Sample returns a command that waits until the next sample is due and takes it. Its message is
	// a Sample.
	Sample() tea.Cmd
	// Do returns a command that runs rdmalab with arguments until it ends. Its message is a Done
	// with this id.
	Do(id int, args []string) tea.Cmd
	// Stop interrupts the command that Do runs under an id. It does not wait until the command has
	// ended.
	Stop(id int)
}

// Done is the result of a command.
type Done struct {
	ID int
	// Output is the command's output, including errors.
	Output string
	Failed bool
}

// Bounds of a model's memory.
const (
	maxEntries = 100        // entries of the log
	maxHistory = sparkWidth // values of each sparkline
)

// entry is an entry of the log at the bottom of the screen: a command that the user has started by
// pressing a key, with its output, or an error text.
type entry struct {
	id     int
	args   []string // nil means that the entry is a text
	stage  stage
	output string
	failed bool
}

// stage says whether a command waits, runs or has ended.
type stage int

const (
	ended stage = iota
	waits       // until the commands before it have ended: a restart after a crash must begin after the crash
	runs
)

// Pane is a part of the screen.
type Pane int

// Panes, in the order of their keys.
const (
	Links Pane = iota
	QPs
	SwitchPane
	panes
)

// Style describes the capabilities of the terminal.
type Style struct {
	// Plain: there are no colours and attributes. ASCII: there are only ASCII characters.
	Plain, ASCII bool
}

// Model is the state of the view. It is a value: Update returns the next state.
type Model struct {
	doer  Doer
	style Style
	// rackFlag is the flag by which commands find the rack: "--rack NAME", or nothing.
	rackFlag      []string
	width, height int
	pane          Pane
	help          bool
	chosen        int // index of the chosen node
	scroll        int // index of the first queue pair that is shown
	now, before   *Sample
	// gone says why there is no rack; "" means that there is one. Without a rack, now is the last
	// sample of the rack that was up.
	gone    string
	history map[string][]uint64 // values of sparklines: throughput by host, and see opsOf, p99Of
	entries []entry
	nextID  int
	// capture is the id of the capture that runs, 0 if none does. captured is the host whose link
	// is captured, or "all".
	capture  int
	captured string
}

var _ tea.Model = Model{}

// New makes a model of a rack. rackFlag is added to commands so that they find the rack.
func New(doer Doer, style Style, rackFlag ...string) Model {
	return Model{doer: doer, style: style, rackFlag: rackFlag, history: map[string][]uint64{}}
}

func (m Model) Init() tea.Cmd { return m.doer.Sample() }

func (m Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case Sample:
		return m.sampled(&msg), m.doer.Sample()
	case Done:
		return m.done(msg)
	case tea.KeyPressMsg:
		return m.key(msg.String())
	}
	return m, nil
}

func (m Model) View() tea.View {
	v := tea.NewView(m.Screen())
	v.AltScreen = true
	v.WindowTitle = "rdmalab top"
	return v
}

func (m Model) sampled(s *Sample) Model {
	if s.Gone != "" {
		m.gone = s.Gone
		return m
	}
	if m.gone != "" { // the rack was made again: earlier samples are of another rack
		m.now, m.history = nil, map[string][]uint64{}
	}
	m.gone, m.before, m.now = "", m.now, s
	m.chosen = min(m.chosen, max(0, len(s.Nodes)-1))
	m.scroll = min(m.scroll, max(0, len(s.QPs)-1))
	history := make(map[string][]uint64, len(s.Nodes))
	for _, n := range s.Nodes {
		h := append(append([]uint64(nil), m.history[n.Name]...), n.UpBits+n.DownBits)
		history[n.Name] = h[max(0, len(h)-maxHistory):]
		for _, one := range []struct {
			name  string
			value uint64
		}{{opsOf(n.Name), n.Ops}, {p99Of(n.Name), n.P99}} {
			if h := m.history[one.name]; len(h) > 0 || n.Clients > 0 {
				h = append(append([]uint64(nil), h...), one.value)
				history[one.name] = h[max(0, len(h)-maxHistory):]
			}
		}
	}
	m.history = history
	return m
}

func (m Model) done(d Done) (Model, tea.Cmd) {
	m.entries = append([]entry(nil), m.entries...)
	for i := range m.entries {
		if e := &m.entries[i]; e.id == d.ID {
			e.stage, e.failed, e.output = ended, d.Failed, d.Output
		}
	}
	if d.ID == m.capture {
		m.capture = 0
	}
	return m.next()
}

// next starts the command that has waited longest, if no other runs. A capture runs beside other
// commands.
func (m Model) next() (Model, tea.Cmd) {
	for _, e := range m.entries {
		if e.stage == runs && e.id != m.capture {
			return m, nil
		}
	}
	for i := range m.entries {
		if e := &m.entries[i]; e.stage == waits {
			m.entries = append([]entry(nil), m.entries...)
			m.entries[i].stage = runs
			return m, m.doer.Do(e.id, e.args)
		}
	}
	return m, nil
}

func (m Model) key(name string) (tea.Model, tea.Cmd) {
	if m.help && name != "q" && name != "ctrl+c" {
		m.help = false
		return m, nil
	}
	switch name {
	case "q", "ctrl+c":
		return m, tea.Quit
	case "?":
		m.help = true
	case "tab", "right":
		m.pane = (m.pane + 1) % panes
	case "shift+tab", "left":
		m.pane = (m.pane + panes - 1) % panes
	case "1", "2", "3":
		m.pane = Pane(name[0] - '1')
	case "up", "k":
		m.chosen = max(0, m.chosen-1)
	case "down", "j":
		if m.now != nil {
			m.chosen = max(0, min(m.chosen+1, len(m.now.Nodes)-1))
		}
	case "pgup", "K":
		m.scroll = max(0, m.scroll-m.page())
	case "pgdown", "J":
		if m.now != nil {
			m.scroll = max(0, min(m.scroll+m.page(), len(m.now.QPs)-1))
		}
	default:
		return m.command(name)
	}
	return m, nil
}

// page returns by how many lines the keys pgdown and pgup scroll.
func (m Model) page() int { return max(1, m.height/3) }

func (m Model) command(key string) (tea.Model, tea.Cmd) {
	if m.now == nil || m.chosen >= len(m.now.Nodes) {
		return m, nil
	}
	n := m.now.Nodes[m.chosen]
	if n.Link == "" && strings.Contains("ldh", key) {
		return m.say("the switch has no link of its own: choose a host with the arrow keys"), nil
	}
	switch key {
	case "l":
		return m.run("inject", "loss", "10%", "--link", n.Name)
	case "d":
		return m.run("inject", "delay", "1ms", "--link", n.Name)
	case "h":
		return m.run("heal", "--link", n.Name)
	case "H":
		return m.run("heal", "--all")
	case "c":
		return m.run("crash", n.Name)
	case "r":
		return m.run("restart", n.Name)
	case "p":
		return m.toggle(&n)
	}
	return m, nil
}

// toggle starts a capture, or ends the one that runs.
func (m Model) toggle(n *Node) (tea.Model, tea.Cmd) {
	if m.capture != 0 {
		m.doer.Stop(m.capture)
		return m, nil // a Done comes when it has ended
	}
	args := []string{"capture"}
	m.captured = "all"
	if n.Link != "" {
		m.captured = n.Name
		args = append(args, n.Name)
	}
	file := fmt.Sprintf("rdmalab-%s-%s.pcapng", m.captured, m.now.At.Format("150405"))
	m = m.asked(append(args, "--snaplen", captureSnaplen, "-w", file))
	e := &m.entries[len(m.entries)-1]
	e.stage, m.capture = runs, e.id
	return m, m.doer.Do(e.id, e.args)
}

// captureSnaplen is how many bytes of each packet a capture keeps: the headers and a small payload.
// So a capture that the user forgets takes long to fill a disk.
const captureSnaplen = "256"

// run queues a command, which runs when the commands before it have ended.
func (m Model) run(args ...string) (tea.Model, tea.Cmd) { return m.asked(args).next() }

// asked adds a command to the list of commands, without running it.
func (m Model) asked(args []string) Model {
	m.nextID++
	return m.note(entry{id: m.nextID, args: append(args, m.rackFlag...), stage: waits})
}

func (m Model) say(text string) Model { return m.note(entry{output: text, failed: true}) }

func (m Model) note(e entry) Model {
	m.entries = append(append([]entry(nil), m.entries...), e)
	m.entries = m.entries[max(0, len(m.entries)-maxEntries):]
	return m
}
