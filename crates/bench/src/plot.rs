//! Plots as SVG, drawn here so that a page needs nothing but itself.

use std::fmt::Write as _;

use crate::stages::Span;

/// A line of a plot.
pub(crate) struct Line {
    pub(crate) name: String,
    /// Which colour: lines of one tree have one.
    pub(crate) colour: usize,
    pub(crate) dashed: bool,
    pub(crate) points: Vec<(f64, f64)>,
}

/// How an axis runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    Linear,
    /// By powers of ten; what is not above zero is left out.
    Log,
    /// The same by powers of sixteen, as bytes are told.
    Bytes,
}

impl Scale {
    /// What it goes by the powers of.
    const fn base(self) -> f64 {
        match self {
            Self::Linear | Self::Log => 10.0,
            Self::Bytes => 16.0,
        }
    }
}

/// An axis: its name, how it runs, and how its numbers are written.
pub(crate) struct Axis {
    pub(crate) name: &'static str,
    pub(crate) scale: Scale,
    pub(crate) label: fn(f64) -> String,
}

// Small, so that letters are legible where a plot is as wide as a phone.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 26.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 46.0;

/// The range of an axis, and its ticks.
struct Range {
    scale: Scale,
    low: f64,
    high: f64,
    ticks: Vec<f64>,
}

impl Range {
    fn of(scale: Scale, values: impl Iterator<Item = f64>) -> Self {
        let shown =
            values.filter(|value| value.is_finite() && (scale == Scale::Linear || *value > 0.0));
        let (low, high) = shown.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let (low, high) = if low > high { (1.0, 10.0) } else { (low, high) };
        match scale {
            Scale::Linear => Self::linear(low.min(0.0), if high > low { high } else { low + 1.0 }),
            Scale::Log | Scale::Bytes => Self::powers(scale, low, high),
        }
    }

    fn linear(low: f64, high: f64) -> Self {
        let rough = (high - low) / 5.0;
        let unit = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * unit).find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        let high = (high / step).ceil() * step;
        let count = ((high - low) / step).round() as usize;
        let ticks = (0..=count).map(|n| low + n as f64 * step).collect();
        Self { scale: Scale::Linear, low, high, ticks }
    }

    fn powers(scale: Scale, low: f64, high: f64) -> Self {
        let base = scale.base();
        // A power itself is no more than that, whatever its logarithm comes to.
        let (from, to) = ((low.log(base) + 1e-9).floor(), (high.log(base) - 1e-9).ceil());
        let to = if to > from { to } else { from + 1.0 };
        let ticks = (from as i32..=to as i32).map(|power| base.powi(power)).collect();
        Self { scale, low: base.powf(from), high: base.powf(to), ticks }
    }

    /// Where a value is, from 0 to 1.
    fn at(&self, value: f64) -> Option<f64> {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log | Scale::Bytes if value <= 0.0 => return None,
            Scale::Log | Scale::Bytes => {
                (value / self.low).log10() / (self.high / self.low).log10()
            }
        };
        share.is_finite().then_some(share)
    }
}

/// Lines over two axes.
pub(crate) fn lines(title: &str, x: &Axis, y: &Axis, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let across = Range::of(x.scale, points().map(|point| point.0));
    let up = Range::of(y.scale, points().map(|point| point.1));
    let place = |&(px, py): &(f64, f64)| {
        let px = LEFT + across.at(px)? * (WIDTH - LEFT - RIGHT);
        let py = HEIGHT - BOTTOM - up.at(py)? * (HEIGHT - TOP - BOTTOM);
        Some((px, py))
    };
    let mut svg = begin(title);
    frame(&mut svg, x, &across, y, &up);
    for line in lines {
        let dashed = if line.dashed { " dashed" } else { "" };
        let placed: Vec<_> = line.points.iter().filter_map(place).collect();
        let path: Vec<_> = placed.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let class = format!("c{}{dashed}", line.colour);
        let name = escape(&line.name);
        let apart = if placed.len() <= 24 { 1 } else { placed.len().div_ceil(MARKS) };
        for point in placed.iter().step_by(apart) {
            svg += &mark(line.colour, &class, *point);
        }
        let path = path.join(" ");
        let _ = write!(
            svg,
            r#"<polyline class="{class}" points="{path}"><title>{name}</title></polyline>"#
        );
    }
    svg += "</svg>";
    svg
}

/// Marks of a line that has more points than can be told apart.
const MARKS: usize = 8;

/// A mark at a point: a shape for each tree, since colours are not enough.
fn mark(tree: usize, class: &str, (x, y): (f64, f64)) -> String {
    let shape = match tree % 6 {
        0 => "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z",
        1 => "m-3-3h6v6h-6z",
        2 => "m0-4l4 7h-8z",
        3 => "m0-4.5l4.5 4.5l-4.5 4.5l-4.5-4.5z",
        4 => "m-4 0h8m-4-4v8",
        _ => "m-3-3l6 6m0-6l-6 6",
    };
    format!(r#"<path class="mark {class}" d="M{x:.1} {y:.1}{shape}"/>"#)
}

/// A line of a legend: its colour, its mark, its dashes.
pub(crate) fn key(tree: usize, dashed: bool) -> String {
    let class = format!("c{tree}{}", if dashed { " dashed" } else { "" });
    let mark = mark(tree, &class, (15.0, 6.0));
    format!(
        r#"<svg class="key" viewBox="0 0 30 12" aria-hidden="true">{}{mark}</svg>"#,
        format_args!(r#"<polyline class="{class}" points="0,6 30,6"/>"#)
    )
}

/// A bar of parts for each name.
pub(crate) fn bars(
    title: &str,
    names: &[String],
    parts: &[&str],
    values: &[Vec<f64>],
    label: fn(f64) -> String,
) -> String {
    let (row, left) = (26.0, 140.0);
    let height = 40.0 + row * names.len() as f64;
    let sums = values.iter().map(|parts| parts.iter().sum());
    let range = Range::of(Scale::Linear, sums);
    let width = WIDTH - left - 66.0;
    let mut svg = format!(
        r#"<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{}">"#,
        escape(title)
    );
    for (index, (name, values)) in names.iter().zip(values).enumerate() {
        let y = 8.0 + row * index as f64;
        let _ = write!(
            svg,
            r#"<text class="name" x="{}" y="{}">{}</text>"#,
            left - 8.0,
            y + 14.0,
            escape(name)
        );
        let mut x = left;
        for (part, (name, value)) in parts.iter().zip(values).enumerate() {
            let wide = range.at(*value).unwrap_or_default() * width;
            let told = escape(&format!("{name}: {}", label(*value)));
            let _ = write!(svg, r#"<rect class="p{part}" x="{x:.1}" y="{y}" "#);
            let _ = write!(svg, r#"width="{wide:.2}" height="18"><title>{told}</title></rect>"#);
            x += wide;
        }
        let sum = label(values.iter().sum());
        let _ = write!(svg, r#"<text x="{:.1}" y="{}">{sum}</text>"#, x + 6.0, y + 14.0);
    }
    svg += "</svg>";
    svg
}

fn begin(title: &str) -> String {
    format!(r#"<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{}">"#, escape(title))
}

/// Axes, grid and numbers.
fn frame(svg: &mut String, x: &Axis, across: &Range, y: &Axis, up: &Range) {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for tick in &up.ticks {
        let Some(at) = up.at(*tick) else { continue };
        let py = bottom - at * (bottom - TOP);
        let _ = write!(
            svg,
            r#"<line class="grid" x1="{LEFT}" x2="{right}" y1="{py:.1}" y2="{py:.1}"/>"#
        );
        let text = escape(&(y.label)(*tick));
        let _ = write!(
            svg,
            r#"<text class="name" x="{}" y="{:.1}">{text}</text>"#,
            LEFT - 6.0,
            py + 4.0
        );
    }
    // Numbers of many ticks would run into each other.
    let apart = across.ticks.len().div_ceil(6);
    for (index, tick) in across.ticks.iter().enumerate() {
        let Some(at) = across.at(*tick).filter(|at| *at <= 1.001) else { continue };
        let px = LEFT + at * (right - LEFT);
        let _ = write!(
            svg,
            r#"<line class="grid" x1="{px:.1}" x2="{px:.1}" y1="{TOP}" y2="{bottom}"/>"#
        );
        let text = if index % apart == 0 { escape(&(x.label)(*tick)) } else { String::new() };
        let _ =
            write!(svg, r#"<text class="middle" x="{px:.1}" y="{}">{text}</text>"#, bottom + 16.0);
    }
    let (middle, low) = ((LEFT + right) / 2.0, HEIGHT - 8.0);
    let _ = write!(
        svg,
        r#"<text class="middle axis" x="{middle}" y="{low}">{}</text>"#,
        escape(x.name)
    );
    let high = (TOP + bottom) / 2.0;
    let _ = write!(
        svg,
        r#"<text class="middle axis" transform="translate(14 {high}) rotate(-90)">{}</text>"#,
        escape(y.name)
    );
}

/// How high a lane of a Gantt chart is, with the room beside it.
const LANE: f64 = 22.0;

/// More bars than this are not told apart: the middle of the run is shown.
const BARS_MAX: usize = 800;

/// Which lane of its stage each is in, the first that is free; and when each lane of a stage ends.
fn in_lanes(stages: usize, shown: &[&Span]) -> (Vec<usize>, Vec<Vec<f64>>) {
    let mut ends: Vec<Vec<f64>> = vec![Vec::new(); stages];
    let places = shown
        .iter()
        .map(|span| {
            let lanes = &mut ends[span.stage];
            let lane = lanes.iter().position(|end| *end <= span.began).unwrap_or(lanes.len());
            let end = span.began + span.seconds;
            match lanes.get_mut(lane) {
                Some(last) => *last = end,
                None => lanes.push(end),
            }
            lane
        })
        .collect();
    (places, ends)
}

/// Stages over time: a lane for each, and more where a stage is at several blocks at once.
pub(crate) fn gantt(stages: &[&str], spans: &[Span]) -> String {
    let mut shown: Vec<&Span> = spans.iter().collect();
    shown.sort_by(|a, b| a.began.total_cmp(&b.began));
    let cut = shown.len().saturating_sub(BARS_MAX) / 2;
    let shown = &shown[cut..shown.len() - cut];
    let (places, ends) = in_lanes(stages.len(), shown);
    let mut first_lanes = Vec::with_capacity(stages.len());
    let mut lanes = 0;
    for ends in &ends {
        first_lanes.push(lanes);
        lanes += ends.len().max(1);
    }
    let (right, bottom) = (WIDTH - RIGHT, TOP + LANE * lanes as f64);
    let height = bottom + BOTTOM;
    let from = shown.first().map_or(0.0, |span| span.began);
    let to = ends.iter().flatten().copied().fold(from, f64::max);
    let range = Range::of(Scale::Linear, [0.0, (to - from).max(1e-6)].into_iter());
    let x = |time: f64| LEFT + range.at(time - from).unwrap_or_default() * (right - LEFT);
    let mut svg =
        format!(r#"<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Stages over time">"#);
    for tick in &range.ticks {
        let px = x(from + tick);
        let (low, at) = (bottom + 16.0, tick * 1e3);
        let _ = write!(
            svg,
            r#"<line class="grid" x1="{px:.1}" x2="{px:.1}" y1="{TOP}" y2="{bottom}"/>"#
        );
        let _ = write!(svg, r#"<text class="middle" x="{px:.1}" y="{low:.1}">{at:.0} ms</text>"#);
    }
    for (stage, name) in stages.iter().enumerate() {
        let middle = ends[stage].len().max(1) as f64 / 2.0;
        let y = TOP + LANE * (first_lanes[stage] as f64 + middle) + 4.0;
        let _ = write!(
            svg,
            r#"<text class="name" x="{}" y="{y:.1}">{}</text>"#,
            LEFT - 6.0,
            escape(name)
        );
    }
    for (span, lane) in shown.iter().zip(places) {
        let y = TOP + LANE * (first_lanes[span.stage] + lane) as f64 + 3.0;
        let (began, end) = (x(span.began), x(span.began + span.seconds));
        let (class, wide, high) = (span.stage % 6, (end - began).max(0.4), LANE - 6.0);
        let (name, block, time) = (escape(stages[span.stage]), span.block, span.seconds * 1e3);
        let _ = write!(svg, r#"<rect class="p{class}" x="{began:.2}" y="{y:.1}" "#);
        let _ = write!(svg, r#"width="{wide:.2}" height="{high:.1}">"#);
        let _ = write!(svg, "<title>{name}, block {block}: {time:.2} ms</title></rect>");
    }
    let _ = write!(
        svg,
        r#"<text class="middle axis" x="{}" y="{}">time since {:.0} ms</text></svg>"#,
        (LEFT + right) / 2.0,
        height - 8.0,
        from * 1e3,
    );
    svg
}

/// Text within HTML or SVG, and in their attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\'' => safe += "&#39;",
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::{Range, Scale, escape};

    #[test]
    fn ticks_cover_the_values() {
        for (low, high) in [(0.0, 7.0), (0.0, 0.003), (3.0, 123_456.0), (5.0, 5.0)] {
            let range = Range::of(Scale::Linear, [low, high].into_iter());
            assert!(range.ticks.len() > 2 && range.ticks.len() < 12, "{:?}", range.ticks);
            assert!(range.low <= low && *range.ticks.last().unwrap() >= high - 1e-9);
        }
        let range = Range::of(Scale::Log, [0.0, 5.0, 20_000.0].into_iter());
        assert_eq!(range.ticks, [1.0, 10.0, 100.0, 1e3, 1e4, 1e5]);
        assert_eq!((range.at(0.0), range.at(1.0)), (None, Some(0.0)));
        let range = Range::of(Scale::Bytes, [20.0, 5_000.0].into_iter());
        assert_eq!(range.ticks, [16.0, 256.0, 4096.0, 65536.0]);
        assert!(Range::of(Scale::Log, std::iter::empty()).ticks.len() == 2);
    }

    #[test]
    fn text_stays_text() {
        assert_eq!(escape("<a href='x'>&\""), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;");
    }
}
