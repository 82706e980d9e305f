//! Looks around in a server's address space, for people who set up a plant.

use std::collections::HashSet;

use opcua::client::Session;
use opcua::types::{
    AttributeId, BrowseDescription, BrowseDirection, BrowseResultMaskFlags, Error, NodeClass, NodeClassMask, NodeId,
    ReadValueId, ReferenceDescription, ReferenceTypeId, Variant,
};

use super::connect::Open;
use super::limits::answered;
use super::node::{Namespaces, Node};
use super::{Sample, value};

/// More nodes than this are not looked at: a server may have a million.
pub const MOST_NODES: usize = 20_000;

/// What was found: every node after the one it was found under.
#[derive(Debug, Default)]
pub struct Tree {
    /// The nodes.
    pub nodes: Vec<Found>,
    /// There were more than [`MOST_NODES`].
    pub cut_off: bool,
}

/// One node.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Its id by namespace URI.
    pub node: Node,
    /// Its browse name.
    pub name: String,
    /// Where in the tree the node is that it was found under.
    pub parent: Option<usize>,
    /// Steps from the start.
    pub depth: usize,
    /// What a variable holds.
    pub variable: Option<Variable>,
    id: NodeId,
}

/// A variable's type and present value.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    /// The data type's name, or its node id where it is the server's own.
    pub data_type: String,
    /// Its value now.
    pub now: Sample,
}

/// Walks down from `start`, at most `depth` steps, and reads every variable. The server's own diagnostics (`i=2253`) are left out unless
/// it is the start.
///
/// # Errors
/// The server's answer to a whole request.
pub async fn tree(open: &Open, start: &NodeId, depth: usize) -> Result<Tree, Error> {
    let (session, namespaces): (_, &Namespaces) = (&open.session, &open.namespaces);
    let mut tree = Tree::default();
    let mut seen = HashSet::from([start.clone(), NodeId::new(0, 2253)]);
    let mut level: Vec<(Option<usize>, NodeId)> = vec![(None, start.clone())];
    for depth in 0..depth {
        let mut below = Vec::new();
        let mut rest = level.as_slice();
        while !rest.is_empty() {
            let (chunk, later) = rest.split_at(open.limits.browse.of(rest.len()));
            let parents: Vec<&NodeId> = chunk.iter().map(|(_, id)| id).collect();
            let found = match children(session, &parents).await {
                Err(e) if open.limits.browse.was_too_many(chunk.len(), e.status()) => continue,
                found => found?,
            };
            rest = later;
            for (parent, reference) in found {
                let id = reference.node_id.node_id;
                let Some(node) = Node::of(&id, namespaces).filter(|_| seen.insert(id.clone())) else { continue };
                if tree.nodes.len() >= MOST_NODES {
                    tree.cut_off = true;
                    break;
                }
                let parent = chunk.get(parent).and_then(|(index, _)| *index);
                let is_variable = reference.node_class == NodeClass::Variable;
                let unread = Variable { data_type: String::new(), now: value::sample(0, Default::default()) };
                below.push((Some(tree.nodes.len()), id.clone()));
                let variable = is_variable.then_some(unread);
                tree.nodes.push(Found {
                    node,
                    name: reference.browse_name.name.to_string(),
                    parent,
                    depth,
                    variable,
                    id,
                });
            }
        }
        level = below;
    }
    read_variables(open, &mut tree.nodes).await?;
    Ok(tree)
}

/// The node that a path of browse names (`Plant/Line1/FILL01`) leads to, from the Objects folder.
///
/// # Errors
/// The server's answer; `Ok(None)` is a path that leads nowhere.
pub async fn follow(session: &Session, path: &str) -> Result<Option<NodeId>, Error> {
    let mut at = NodeId::objects_folder_id();
    for name in path.split('/').filter(|name| !name.is_empty()) {
        let found = children(session, &[&at]).await?;
        let next = found
            .into_iter()
            .find(|(_, r)| r.browse_name.name.as_ref() == name || r.display_name.text.as_ref() == name);
        match next {
            Some((_, reference)) => at = reference.node_id.node_id,
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

/// The objects and variables below nodes; each with the index of the one it is below of.
async fn children(session: &Session, parents: &[&NodeId]) -> Result<Vec<(usize, ReferenceDescription)>, Error> {
    let asked: Vec<_> = parents
        .iter()
        .map(|id| BrowseDescription {
            node_id: (*id).clone(),
            browse_direction: BrowseDirection::Forward,
            reference_type_id: ReferenceTypeId::HierarchicalReferences.into(),
            include_subtypes: true,
            node_class_mask: (NodeClassMask::OBJECT | NodeClassMask::VARIABLE).bits(),
            result_mask: BrowseResultMaskFlags::all().bits(),
        })
        .collect();
    let mut found = Vec::new();
    let mut rest: Vec<_> = answered(session.browse(&asked, 0, None)).await?.into_iter().enumerate().collect();
    while let Some((parent, result)) = rest.pop() {
        for r in result.references.into_iter().flatten().filter(|r| r.node_id.server_index == 0) {
            found.push((parent, r));
        }
        if !result.continuation_point.is_null_or_empty() {
            let more = answered(session.browse_next(false, &[result.continuation_point])).await?;
            rest.extend(more.into_iter().map(|more| (parent, more)));
        }
    }
    found.sort_by_key(|(parent, _)| *parent);
    Ok(found)
}

async fn read_variables(open: &Open, nodes: &mut [Found]) -> Result<(), Error> {
    let variables = nodes.iter_mut().filter_map(|found| Some((&found.id, found.variable.as_mut()?)));
    let (ids, variables): (Vec<&NodeId>, Vec<&mut Variable>) = variables.unzip();
    let both =
        |id: &&NodeId| [ReadValueId::new_value((*id).clone()), ReadValueId::new((*id).clone(), AttributeId::DataType)];
    let asked: Vec<_> = ids.iter().flat_map(both).collect();
    let mut read = open.limits.read_all(&open.session, &asked).await?.into_iter();
    for variable in variables {
        let (Some(now), Some(kind)) = (read.next(), read.next()) else { break };
        variable.now = value::sample(0, now);
        variable.data_type = match kind.value {
            Some(Variant::NodeId(id)) => {
                id.as_data_type_id().map_or_else(|_| id.to_string(), |known| format!("{known:?}"))
            }
            _ => "unknown".to_owned(),
        };
    }
    Ok(())
}
