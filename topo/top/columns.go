package top

// column is a column of a table. Texts are aligned left, numbers are aligned right.
type column struct {
	title  string
	width  int // in characters
	number bool
}

func text(title string, width int) column   { return column{title, width, false} }
func number(title string, width int) column { return column{title, width, true} }

// cell is the text of a line in one column, and its paint.
type cell struct {
	paint paint
	text  string
}

func (l *line) head(columns []column) {
	for _, c := range columns {
		l.cells([]column{c}, []cell{{faint, c.title}})
	}
}

// cells writes one cell for each column. There may be more cells than columns, as on a narrow
// screen; the last cells are then left out.
func (l *line) cells(columns []column, cells []cell) {
	for i, c := range columns[:min(len(columns), len(cells))] {
		if c.number {
			l.right(cells[i].paint, c.width, cells[i].text)
		} else {
			l.left(cells[i].paint, c.width, cells[i].text)
		}
	}
}
